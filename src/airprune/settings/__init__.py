"""Checked settings, for scenarios and for the options of components.

section    frozen values of fixed types
problems   one sentence for a wrong value
toml_text  TOML to plain values and back
"""
