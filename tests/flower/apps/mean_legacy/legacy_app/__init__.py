"""The same model with the legacy interface: NumPyClient and a legacy strategy."""
