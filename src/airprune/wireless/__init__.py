"""The network and its radio: where devices stand, what their links carry, how long computing and sending take.

network       cloud, edges and devices: places, CPUs
path_loss     models of path loss, by name
channel       path loss, shadowing, fading, SNR and the uplink rate of Eq. (10)
slice_noise   rates where a device's power lies on its slice of the bandwidth
mcs           rates of 5G NR's modulation and coding schemes, with block errors and HARQ
mimo          devices that a station hears at once: groups, and zero forcing
csi           fading as plans know it: estimated or outdated, and gains that they can count on
channels/     channels as components: gains of links, fading of a round, rates
traces        gains or rates of links over time, from a file
fcd           positions over time from SUMO, and their traces
motion        devices that move, along traces or from waypoint to waypoint
latency       how long a round takes and what it costs, Eqs. (4), (6), (9), (11), (14)–(16)
device_speed  FLOPs of a model, boards, and what `airprune profile` writes
"""
