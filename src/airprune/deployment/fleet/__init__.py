"""A fleet that stays: the cloud as a service, runs as jobs.

registry     jobs of a fleet, in one file
service      the cloud process of a fleet: one job after the other
fitting      a scenario on the fleet as it is
logs         logs as JSON lines
units        systemd units of the nodes
"""
