"""The runs page: what lies under the runs folder, live while it is written.

names       which folders an address may name, and that none leads outside
finding     run, deployment and reproduction folders under the runs folder
listing     one line about each run, remembered until its files change
thinning    a series of any length as a bounded number of points
following   a records file followed as it grows
views       runs as the page draws them: curves, devices, coverage, differences
groups      hundreds of runs as few curves: mean and interval over seeds
reached     what it took runs to reach an accuracy
stream      server-sent events: the list, the curves of the chosen runs, the run at work
routes      the addresses

A run folder may hold anything: what is read of it is limited in size, and whatever cannot be read is counted and left
out. Files are opened only if they are plain files, so a link or a pipe in a run folder leads nowhere.
"""
