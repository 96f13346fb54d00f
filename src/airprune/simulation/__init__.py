"""What is simulated of a run: who is there, what goes wrong, and devices that train in this process or its workers.

environment   what a run meets; a deployment and a replay have others
events        devices that disappear or slow down
"""

from airprune.simulation.environment import Environment, run_rounds

__all__ = ["Environment", "run_rounds"]
