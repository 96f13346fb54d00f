"""Allocates bandwidth shares and pruning ratios from the state of radio and CPU.

problem             the input of a planner, Eqs. (25)–(29)
plan                its output: shares, ratios, status, smallest deadline
schemes/            one file per way to allocate shares and ratios
tradeoff            weights that a share carries within the deadline, Eqs. (31) and (35)
water_filling       the exact optimum, Theorem 3 with its bounds
slice_filling       the same where a device's power lies on its slice of the bandwidth
turns               the same where groups of devices send at once, in turn
feasibility         existence of a plan, blocking devices, the smallest deadline
edges               devices grouped by the edge whose bandwidth they share
interference        edges that use the same bandwidth: the fixed point of shares and rates
limits              ranges of CPU frequency and power, energy budget
levels              CPU frequency and power chosen together
compression_levels  bits per weight that each device can afford
work_model          parts, local steps and their progress: the work that devices can do
work                part, local steps, bits and share of every device together
multiple_choice     one option per device within the bandwidth of every edge, exact where edges are small
matching            assignment of devices to blocks of the bandwidth
roots               roots of many functions at once
fleet               device tables of users as planning problems and networks
inverse             the smallest deadline or bandwidth that keeps pruning below a target
deadline            the deadline with the least time to accuracy
periods             numbers of edge rounds and local steps, by published rules
"""

from airprune.planning.compression_levels import Codes, Ladder
from airprune.planning.interference import Interference
from airprune.planning.limits import DeviceLimits
from airprune.planning.plan import Plan, Status
from airprune.planning.problem import PlanProblem, Seen
from airprune.planning.work_model import MeasuredWork, WorkModel

__all__ = [
    "Codes",
    "DeviceLimits",
    "Interference",
    "Ladder",
    "MeasuredWork",
    "Plan",
    "PlanProblem",
    "Seen",
    "Status",
    "WorkModel",
]
