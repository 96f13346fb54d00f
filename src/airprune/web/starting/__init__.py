"""Starting, stopping and resuming a run from the page, if the server was started with --allow-run.

wanted    what a page asks for, as a scenario: the same rules and sentences as on the command line
form      the scenario's fields, made from its JSON schema
work      the one run at work: a process of its own
child     that process: `airprune run` that stops cleanly when its server asks or is gone
routes    the addresses
"""
