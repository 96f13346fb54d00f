"""The simulated environment: devices that take part, slow down or disappear, trained in this process or its workers."""

from airprune.simulation.environment import Environment, run_rounds

__all__ = ["Environment", "run_rounds"]
