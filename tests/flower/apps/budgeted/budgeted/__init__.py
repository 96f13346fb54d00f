"""Clients that keep to their plans: the mod of airprune, and a loop that ends with its steps."""
