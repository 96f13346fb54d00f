"""Secure sums: an edge learns the sum of its devices' updates and none of them, after Bonawitz et al. 2017.

fixed_point  updates as whole numbers modulo 2^k, whose sums are exact
shamir       a secret in n shares, of which any t give it back
keys         X25519 agreement, key derivation, masks from a stream cipher, sealed shares
exchange     the messages between devices and edge, both sides, and their sizes
cohort       the devices of one edge in one round, in a simulation
"""
