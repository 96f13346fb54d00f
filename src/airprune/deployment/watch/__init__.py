"""Shows a deployment from its files: that of one run, or a whole fleet. Nothing here talks to a node.

uploads   measured.jsonl of a run, followed as it grows
counts    the counts that `/metrics`, `deploy status` and the Deployment page share
alerts    what an operator should look at
view      all of it at one moment
"""
