"""Flower apps on the air."""
