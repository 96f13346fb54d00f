"""Algorithm 1 with a simulated clock.

experiment  a scenario made concrete: network, radio, samples, model, method
checks      what is refused before a run begins
stations    who is served by which station, and over which channel
rounds      Algorithm 1 over the tree of nodes, line for line
clock       how long devices compute and upload, what that costs, who is late or lost
state       what a run carries from round to round
recording   what a round leaves in the records
"""
