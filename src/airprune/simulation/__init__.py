"""Algorithm 1 with a simulated clock.

experiment  a scenario made concrete: network, radio, samples, model, method
rounds      Algorithm 1 over the tree of nodes, line for line
clock       how long devices compute and upload, what that costs, who is late or lost
chunks      a round's devices in chunks, and how their sums become an edge's model
worker      what trains a chunk, wherever that is
recording   what a round leaves in the records
"""
