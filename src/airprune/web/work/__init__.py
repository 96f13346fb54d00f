"""The work page: what boards of unequal speed can do before the deadline, beside the plan of scheme `work`.

boards     the kinds of devices, their speeds and where the numbers come from
settings   what can be set, and how an address spells it
picture    the plan and the tried work as the page draws them
routes     the addresses
"""
