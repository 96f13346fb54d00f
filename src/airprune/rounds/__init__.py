"""The steps of a round that a simulation and a deployment share; none of them knows a clock.

method     the components of a scenario, chosen and bound to their options
terms      what a round is planned with, and the problem of the devices asked
messages   what travels between an edge and a device
opened     a round as it is planned
edge       before a round: who is asked, the plan, the orders; after it: the edge's next model
relayed    … where devices hand their updates to each other first
device     what a device does with its orders: choose, train, encode
constants  what a device measures for Theorem 1, if asked to
personal   layers that stay on their devices
private    clipping and noise, before anything leaves a device
summing    how a parent adds a child to its sum
cloud      what the nodes above the edges do with their children's models
backhaul   what those models travel through
wire       all of it as bytes
"""
