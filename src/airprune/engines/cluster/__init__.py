"""The engine `dask`: the same work on a cluster of Dask workers.

engine        hands an edge round out and brings the averages home
members       which workers may take part: right versions, right data
parcel        the job and its data as files, placed once per machine and checked by hash
tasks         what runs on the workers: train a chunk, merge a group, average an edge
local         a cluster of this machine's own, when no scheduler is given
certificates  TLS: a private authority and a certificate for each role
serve         `airprune cluster scheduler` and `airprune cluster worker`
crew          the workers of one machine, watched and restarted
"""
