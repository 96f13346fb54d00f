"""The work of a worker: training chunks of devices, judging models.

chunks      a round's devices in chunks, and how their sums become an edge's model
worker      what trains a chunk, wherever that is
together    devices of a chunk trained in step
optimisers  steps that never move a pruned weight
evaluate    loss and accuracy on held-out samples
"""
