"""The planner page: from settings in an address to a picture of the plan.

settings   what can be set, and how an address spells it
fleets     tables that the page has sent, remembered for a while
scene      the devices of a setting: placed by rings, or from a fleet table
picture    the plan as the page draws it
words      the plan in sentences
routes     the addresses
"""
