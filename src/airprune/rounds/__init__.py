"""Algorithm 1: the rounds of a run, shared by simulation and deployment. `driver` reads as the paper's lines.

driver            edge rounds and global rounds, line for line
plan_round        an edge round before any device trains: selected, planned, masked, timed
settling          an edge round once its results are there, settled for components and parts; whether training diverged
parts             persistent state of the driver itself, as small parts with slots
cloud             the nodes above the edges: they wait, combine and send down, over the backhaul
evaluation        test metrics of the models
state             the place of a run (indices, learning rate, local steps) and what a checkpoint holds
recording         records of a round; `records` has their types

experiment        a scenario made concrete: network, radio, samples, model, method
method            the components of a scenario, with their options
checks            combinations and models that are refused before a run begins
stations          association and channels
planning_context  what a round is planned with, the problem of the selected devices, and a round as planned
edge              before a round: selection, plan, orders; after it: the edge's next model
relayed           … where devices hand their updates to each other first
timing            how long devices compute and upload, what that costs, which ones miss the deadline
compute_times     how long a device computes
messages, wire    what travels between an edge and a device, as values and as bytes

device            a device's round: choose, train by the steps of Eq. (8), encode
local             what outlives it: settings, model, samples, random streams
optimisers        SGD and Adam
sending           what a device does with its update before it sends it: own layers, clipping and noise, compression
constants         what a device measures for Theorem 1
model_source      where the model comes from, here and in workers
training/         chunks of devices in workers
sums              the sums of Eqs. (12) and (13)
rollback          what becomes of a sum that explodes, and which children are suspected
attacks           attackers of a simulation: which devices, and what they send
"""
