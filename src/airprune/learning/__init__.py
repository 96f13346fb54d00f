"""Training and averaging: what devices, edges and the cloud do to the weights.

trainer     one device: probe, mask, masked minibatch SGD, Eqs. (2), (5), (8)
native      minibatch gradients of the paper's CNN, in C
optimisers  steps that never move a pruned weight
aggregate   per-weight averages as streaming sums, Eqs. (12), (13)
evaluate    loss and accuracy on held-out samples
"""
