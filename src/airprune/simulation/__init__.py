"""The simulated environment of a run: devices that are there, slow down or disappear, and train in this process or its workers."""

from airprune.simulation.environment import Environment, run_rounds

__all__ = ["Environment", "run_rounds"]
