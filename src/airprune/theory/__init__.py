"""Bounds: how fast training converges, and what clipping and noise are worth.

convergence   Theorem 1 and Lemmas 2–5
privacy       the exact (ε, δ) of all uploads of one device
"""
