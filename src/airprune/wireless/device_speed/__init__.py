"""Compute time of a device: counted FLOPs, boards, and measured profiles.

boards   common boards: cores, clock, peak FLOP per cycle, and where each number comes from
work     FLOPs of a model, layer by layer, as plain numbers
flops    counts them in a torch model
times    seconds of a device for so many kept weights: the one place that planner, clock and energies ask
profile  what `airprune profile` writes and `clock.profile` reads
timing   times a scenario's model on this machine
"""
