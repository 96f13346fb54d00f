"""How settings take their values, for scenarios and for the options of components.

section    frozen values of fixed types
problems   what is wrong with a value, as one sentence
toml_text  TOML to plain values and back
"""
