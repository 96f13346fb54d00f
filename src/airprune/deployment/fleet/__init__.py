"""A fleet that stays: the cloud as a service, runs as jobs.

registry     jobs and delivered models of a fleet, in one file
releases     models of finished jobs, as they are delivered
service      the cloud process of a fleet: one job after the other
fitting      a scenario on the fleet as it is
enrolment_server   certificates for devices that show a one-time code, over HTTPS
logs         logs as JSON lines
units        systemd units of the nodes
"""
