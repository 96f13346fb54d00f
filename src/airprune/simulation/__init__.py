"""The simulated environment of a run: devices disappear or slow down, and train in this process or its workers."""

from airprune.simulation.environment import Environment, run_rounds

__all__ = ["Environment", "run_rounds"]
