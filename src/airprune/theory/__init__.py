"""Bounds on convergence, and differential privacy of clipping and noise.

convergence   Theorem 1 and Lemmas 2–5
privacy       the exact (ε, δ) of all uploads of one device
"""
