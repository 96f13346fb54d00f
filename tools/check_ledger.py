"""Recomputes rows and verdicts of a league from its ledger, with numpy and json alone: nothing of airprune is imported.

python tools/check_ledger.py [LEDGER]      default: docs/league-played.jsonl

Rows: mean accuracy after all rounds and at equal time, their intervals, the target, and time, bits of all links and
joules to it, compared with league.csv beside the ledger (X-results.csv beside X-played.jsonl). Verdicts: claims that
compare the accuracies of two arms, compared with league.json. Exits with 1 if anything differs.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

SEED, WHOLE, LINKS = "adaptive-pruning", "no-pruning", ("uplink", "downlink", "backhaul", "d2d")
# The claims about accuracy: what is claimed of the first arm against the second; "by 3" and more: by three points.
RULES = {
    "fedprox-helps-on-unlike-data": ("better", "fedprox", "hierfavg"),
    "scaffold-beats-fedavg-per-round": ("better", "scaffold", "without"),
    "selection-beats-pruning-everybody": ("better", "selecting", "pruning all"),
    "hierarchy-beats-liu2022": ("better", "adaptive-pruning", "liu2022"),
    "frozen-beats-zeroed": ("better", "frozen-pruning", "adaptive-pruning"),
    "least-variance-beats-least-pruning": ("better", "variance", "adaptive-pruning"),
    "mixed-widths-beat-the-smallest": ("better", "mixed widths", "smallest width"),
    "ordered-dropout-beats-random": ("better", "fjord-fc", "feddrop"),
    "adaptive-dropout-beats-random": ("better", "afd", "random"),
    "hier-sign-is-comparable": ("no worse", "signs", "full precision"),
    "where-devices-sit-does-not-matter": ("same", "as placed", "reassigned"),
    "memory-rescues-top-k": ("better by 3", "error feedback", "none"),
}
DELTA, LOOKS = 0.03, (5, 10, 20)


def t_quantile(level: float, freedom: int) -> float:
    """Of Student's t, two-sided, by quadrature of its density and bisection."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        x = np.sinh(np.linspace(0.0, math.asinh(middle), 4001))
        inside = 2 * scale * np.trapezoid((1 + x**2 / freedom) ** (-(freedom + 1) / 2), x)
        low, high = (middle, high) if inside < level else (low, middle)
    return low


def mean_and_half(values: list[float]) -> tuple[float, float]:
    spread = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), float(spread * t_quantile(0.95, len(values) - 1)) if len(values) > 1 else math.nan


def cost(line: dict, target: float, key: str) -> float:
    """Of the first cloud model that reaches the target; ∞ if none does."""
    for test in line["played"]["tests"]:
        if float(test["test_accuracy"]) >= target:
            links = line["played"]["links"][str(test["global_round"])]
            return sum(links[name] for name in LINKS) if key == "bits" else test[key]
    return math.inf


def accuracy_at(line: dict, time_s: float) -> float:
    tests = line["played"]["tests"]
    if tests[-1]["time_s"] * (1 + 1 / len(tests)) <= time_s * (1 + 1e-9):
        return math.nan  # another round would have fitted
    there = [float(test["test_accuracy"]) for test in tests if test["time_s"] <= time_s * (1 + 1e-9)]
    return there[-1] if there else math.nan


def last(line: dict) -> float:
    return float(line["played"]["tests"][-1]["test_accuracy"])


def row_faults(row: dict, lines: list[dict], target: float, horizon_s: float) -> list[str]:
    """Compares one row of the table with the runs of its method."""
    expected: dict[str, float | str] = {}
    for by, values in (("rounds", [last(x) for x in lines]), ("time", [accuracy_at(x, horizon_s) for x in lines])):
        if row[f"accuracy_{by}"] and not np.isnan(values).any():
            expected[f"accuracy_{by}"], half = mean_and_half(values)
            expected |= {} if math.isnan(half) else {f"accuracy_{by}_half_width_95": half}
    if row["reached"] and row["target_accuracy"]:
        for name, key in (("time_to_target_s", "time_s"), ("bits_to_target", "bits"), ("joules_to_target", "energy_j")):
            costs = [cost(line, target, key) for line in lines]
            middle = float(np.mean(costs) if np.isfinite(costs).all() else np.median(costs))
            expected[name] = middle if math.isfinite(middle) else "not reached"
    return [
        f"{row['division']} {row['method']}, {name}: recorded {row[name]}, recomputed {value}"
        for name, value in expected.items()
        if not (row[name] == value or (row[name][:1].isdigit() and math.isclose(float(row[name]), value, rel_tol=5e-4)))
    ]


def verdict(rule: str, effects: list[float]) -> str:
    """Looks at 5, 10 and 20 seeds, each with an interval of 1 − 0.05 / 3; the first look that decides is final."""
    for look in LOOKS:
        if len(effects) < look:
            break
        mean, spread = np.mean(effects[:look]), np.std(effects[:look], ddof=1) / math.sqrt(look)
        half = t_quantile(1 - 0.05 / len(LOOKS), look - 1) * spread
        low, high = mean - half, mean + half
        within, much = max(-low, high) < DELTA, rule == "better by 3"
        holds = {"no worse": low > -DELTA, "same": within}.get(rule, low > 0 and (not much or mean >= DELTA))
        fails = {"no worse": high < -DELTA, "same": low > DELTA or high < -DELTA}.get(rule, high < 0)
        if holds or fails:
            return "holds" if holds else "does not hold"
        if rule.startswith("better") and (within or (much and high < DELTA)):
            return "no difference larger than δ" if within else "does not hold"
    return "cannot be decided"


def check(ledger: Path) -> tuple[int, int, list[str]]:
    """Returns the number of rows and of verdicts that were recomputed, and the differences."""
    is_own, stem = ledger.name == "played.jsonl", ledger.name.removesuffix("-played.jsonl")
    table = ledger.with_name("league.csv" if is_own else f"{stem}-results.csv")
    document = ledger.with_name("league.json" if is_own else f"{stem}-results.json")
    by_cell, by_arm = defaultdict(list), defaultdict(dict)
    for text in ledger.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["purpose"] == "ranked":
            by_cell[line["track"], line["method"]].append(line)
        elif line["purpose"] == "claim":
            by_arm[line["label"].rpartition(", seed ")[0]][line["seed"]] = line
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    rows = [row for row in rows if by_cell[row["division"], row["method"]]]
    faults, num_verdicts = list[str](), 0
    for row in rows:
        whole, seed = (by_cell[row["division"], name] for name in (WHOLE, SEED))
        target = 0.95 * float(np.mean([last(line) for line in whole])) if whole else math.inf
        horizon_s = max([x["settings"].get("stop.time_s") or x["played"]["tests"][-1]["time_s"] for x in seed] or [0.0])
        faults += row_faults(row, by_cell[row["division"], row["method"]], target, horizon_s)
    for claim in json.loads(document.read_text(encoding="utf-8"))["claims"]:
        rule, *arms = RULES.get(claim["name"], ("", "", ""))
        first, second = (by_arm[f"{claim['name']} ({arm})"] for arm in arms)
        if rule and first and second:
            seeds = [seed for seed in sorted(first) if seed in second]
            found = verdict(rule, [last(first[seed]) - last(second[seed]) for seed in seeds])
            num_verdicts += 1
            faults += [] if found == claim["verdict"] else [f"{claim['name']}: {claim['verdict']}, recomputed {found}"]
    return len(rows), num_verdicts, faults


if __name__ == "__main__":
    num_rows, num_claims, found_faults = check(Path([*sys.argv[1:], "docs/league-played.jsonl"][0]))
    sys.stdout.write("\n".join([*found_faults, f"{num_rows} rows, {num_claims} verdicts recomputed", ""]))
    sys.exit(bool(found_faults))
