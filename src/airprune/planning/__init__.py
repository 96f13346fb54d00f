"""From radio and CPU state to bandwidth shares and pruning ratios.

problem        what is asked, Eqs. (25)–(29)
codes          codes of ascending size, and the largest that fits
ladder         codes of different bits and errors, and which one each device can afford
levels         clock and power that belong together
limits         clock, power and energy, for schemes that choose them
edges          devices grouped by the band they share
tradeoff       what a share buys within the deadline, Eqs. (31) and (35)
water_filling  the exact optimum, Theorem 3 with the box
feasibility    whether a plan exists, what blocks, the smallest deadline
matching       devices matched with blocks of the band
roots          roots of many functions at once
plan           the answer
fleet          a fleet as users keep it, one row per device
inverse        how little time, or how little bandwidth, keeps pruning below a target
schemes/       one file per way to choose shares and ratios
periods        how often to average, by a rule of others
"""

from airprune.planning.codes import Codes
from airprune.planning.ladder import Ladder
from airprune.planning.limits import DeviceLimits
from airprune.planning.plan import Plan, Status
from airprune.planning.problem import PlanProblem

__all__ = ["Codes", "DeviceLimits", "Ladder", "Plan", "PlanProblem", "Status"]
