"""Advice on method, bits, deadline and time to an accuracy, from pilots, the planner and a forecast.

candidates  the methods to choose from, and the lossless one that they are measured by
sample_fleet  some devices of a large fleet, for short runs
pilots      small runs of all of them, and a longer one of the lossless method, within a time budget
curves      the learning curve of a pilot, and its uncertainty
slowdown    the rounds that a method needs for one of the lossless method
rehearsal   a run's clock without its learning: time, bits and joules of an edge round
forecast    rounds, time, bits and joules until an accuracy, with intervals; the method to take
checking    the forecast against the real run
"""

from airprune.studies.advice.candidates import LOSSLESS, Candidate, candidates, default_candidates, without_plan
from airprune.studies.advice.checking import Outcome, outcome_of
from airprune.studies.advice.forecast import Advice, Forecast, advise
from airprune.studies.advice.pilots import Pilots, run_pilots

__all__ = [
    "LOSSLESS",
    "Advice",
    "Candidate",
    "Forecast",
    "Outcome",
    "Pilots",
    "advise",
    "candidates",
    "default_candidates",
    "outcome_of",
    "run_pilots",
    "without_plan",
]
