"""Algorithm 1: the rounds of a run, shared by simulation and deployment. `driver` reads as the paper's lines.

driver            edge rounds and global rounds, line for line
place             where a run stands: indices, learning rate, local steps of one edge round
plan_round        an edge round before any device trains: selected, planned, masked, timed
groups            its work, edge by edge, in chunks
settling          an edge round once its results are there, settled for whatever sees it
parts             what the driver itself remembers from round to round
upper_levels      the nodes above the edges: what they wait for, combine and send down
evaluation        how good the models are
divergence        whether training has diverged
state             what a checkpoint holds
recording         what a round leaves in the records; `records` has their types

experiment        a scenario made concrete: network, radio, samples, model, method
method            the components of a scenario, with their options
checks            what is refused before a run begins
stations          association and channels
planning_context  what a round is planned with, and the problem of the selected devices
planned_round     a round as it is planned
edge              before a round: selection, plan, orders; after it: the edge's next model
relayed           … where devices hand their updates to each other first
timing            how long devices compute and upload, what that costs, which ones miss the deadline
compute_times     how long a device computes
messages, wire    what travels between an edge and a device, as values and as bytes

device            what a device does with its orders: choose, train, encode
local_steps       its steps, Eq. (8), and the optimisers
sending           what it does with its update before it sends it
private           clipping and noise, before anything leaves a device
personal          layers that stay on their devices
constants         what a device measures for Theorem 1
model_source      where the model comes from, here and in workers
training/         chunks of devices in workers
sums              the sums of Eqs. (12) and (13)
cloud, backhaul   what the nodes above the edges do with their children's models, and their links
"""
