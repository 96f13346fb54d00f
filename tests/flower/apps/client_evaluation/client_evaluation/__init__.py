"""Evaluation on clients alone: each has test samples of its own."""
