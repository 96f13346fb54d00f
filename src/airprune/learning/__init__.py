"""Steps and judgements of a model, used by what trains it (`federation.device`).

optimisers  steps that never move a pruned weight
evaluate    loss and accuracy on held-out samples
"""
