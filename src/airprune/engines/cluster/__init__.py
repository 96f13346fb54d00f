"""The engine `dask`: the same work on a cluster of Dask workers.

engine        hands tasks and groups of them to the workers
connection    a client of a scheduler
members       which workers may take part: right versions, right files
parcel        the factory and its files, placed once per machine and checked by hash
tasks         what runs on the workers: a task, a merge, a group's end
local         a cluster of this machine's own, when no scheduler is given
scratch       temporary folders, removed by the next process if this one is killed
versions      what the code of a process is
certificates  TLS: a private authority and a certificate for each role
serve         `airprune cluster scheduler` and `airprune cluster worker`
crew          the workers of one machine, watched and restarted
"""
