"""The steps of a round that a simulation and a deployment share; none of them knows a clock.

method    the components of a scenario, chosen and bound to their options
messages  what travels between an edge and a device
device    what a device does with it: choose, train, encode
edge      before a round: who is asked, the plan, the orders; after it: the edge's next model
cloud     what the nodes above the edges do with their children's models
"""
