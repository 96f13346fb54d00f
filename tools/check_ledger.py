"""Recomputes rows, tuned values and verdicts of a league from its ledger, with numpy and json alone: no airprune.

python tools/check_ledger.py [LEDGER]      default: docs/league-played.jsonl

Rows: mean accuracy after all rounds and at equal time, their intervals, the target, and time, bits of all links and
joules to it, compared with league.csv beside the ledger (X-results.csv beside X-played.jsonl). Tuned values: those of
the highest mean over three tuning seeds. Verdicts: compared with league.json. Exits with 1 if anything differs.
"""

import csv
import json
import math
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

# What claims say of their arms: more accurate (>), by 3 points (>>), no worse than by 3 points (>=), within 3 points
# (=); or that the whole run costs less (<), by 10 % (<<). "&" joins parts.
RULES = """
fedprox-helps-on-unlike-data: fedprox > hierfavg; scaffold-beats-fedavg-per-round: scaffold > without
hierarchy-beats-liu2022: adaptive-pruning > liu2022; taylor-beats-magnitude: taylor > magnitude
frozen-beats-zeroed: frozen-pruning > adaptive-pruning; memory-rescues-top-k: error feedback >> none
least-variance-beats-least-pruning: variance > adaptive-pruning; adaptive-dropout-beats-random: afd > random
h-sgd-lies-between: short period > long period & short period >= H-SGD & H-SGD >= long period
hier-sign-is-comparable: signs >= full precision; where-devices-sit-does-not-matter: as placed = reassigned
ordered-dropout-beats-random: fjord-fc > feddrop; least-energy-saves-energy: least energy << full of energy_j
phfl-saves-energy: phfl < hierfavg of energy_j & phfl >= hierfavg
hfel-saves-energy: hfel < nearest of energy_j & hfel < nearest of time_s
in-network-aggregation-saves-time: ina << star of time_s & ina << nearest of time_s
fog-saves-time: fogfl < fedavg of time_s & fogfl < hierfavg of time_s
"""
PART = re.compile(r"(.+?) (>>|>=|<<|[<>=]) (.+?)(?: of (\w+))?")


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Mean and half-width by Student's t, whose quantile is read off its density, summed up to 8 · 10⁴."""
    x = np.sinh(np.linspace(0.0, 12.0, 200_001))
    density = (1 + x**2 / (len(values) - 1)) ** (-len(values) / 2)
    inside = np.cumsum((density[1:] + density[:-1]) * np.diff(x))
    quantile = np.interp(level, inside / inside[-1], x[1:])
    return float(np.mean(values)), float(quantile * np.std(values, ddof=1) / math.sqrt(len(values)))


def read(text: str) -> dict:
    """A line of the ledger; tests as arrays, bits of all links beside them."""
    line = json.loads(text)
    tests = line["played"]["tests"]
    for key in ("test_accuracy", "time_s", "energy_j"):
        line[key] = np.array([float(test[key]) for test in tests])
    line["bits"] = np.array([sum(line["played"]["links"][str(test["global_round"])].values()) for test in tests])
    line["knobs"], line["last"] = json.dumps(line["tuned"], sort_keys=True), line["test_accuracy"][-1]
    return line


def cost(line: dict, target: float, key: str) -> float:
    """Of the first cloud model that reaches the target; ∞ if none does."""
    reached = line["test_accuracy"] >= target
    return float(line[key][np.argmax(reached)]) if reached.any() else math.inf


def accuracy_at(line: dict, time_s: float) -> float:
    """Of the last cloud model by then; NaN if there is none, or if another round would have fitted."""
    ends_s = line["time_s"] / (1 + 1e-9)
    has_room = ends_s[-1] * (1 + 1 / len(ends_s)) <= time_s
    return math.nan if has_room or ends_s[0] > time_s else line["test_accuracy"][ends_s <= time_s][-1]


def row_faults(row: dict, lines: list[dict], target: float, horizon_s: float) -> list[str]:
    """Compares one row of the table with the runs of its method."""
    expected: dict[str, float | str] = {}
    for by, values in (("rounds", [x["last"] for x in lines]), ("time", [accuracy_at(x, horizon_s) for x in lines])):
        if row[f"accuracy_{by}"] and not np.isnan(values).any():
            middle, half = interval(values) if len(values) > 1 else (values[0], math.nan)
            expected |= {f"accuracy_{by}": middle} | (
                {} if math.isnan(half) else {f"accuracy_{by}_half_width_95": half}
            )
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


def verdict(sign: str, effects: np.ndarray) -> str:
    """Looks at 5, 10 and 20 seeds, each with an interval of 1 − 0.05 / 3; the first look that decides is final."""
    delta, is_better, much = -math.log(0.9) if "<" in sign else 0.03, sign not in (">=", "="), sign in (">>", "<<")
    for look in (count for count in (5, 10, 20) if count <= len(effects)):
        mean, half = interval(effects[:look], 1 - 0.05 / 3)
        within = max(half - mean, mean + half) < delta
        holds = {">=": mean - half > -delta, "=": within}.get(sign, mean > half and (not much or mean >= delta))
        fails = {">=": mean + half < -delta, "=": abs(mean) > delta + half}.get(sign, mean + half < 0)
        if holds or fails or (is_better and (within or (much and mean + half < delta))):
            return "holds" if holds else "does not hold" if fails or not within else "no difference larger than δ"
    return "cannot be decided"


def judged(claim: str, rule: str, arms: dict[str, dict[int, dict]]) -> str:
    """The verdict on all parts of a claim, on the seeds that all of its arms have; empty if there are none."""
    parts = [match.groups() for part in rule.split(" & ") if (match := PART.fullmatch(part))]
    used = {name: arms.get(f"{claim} ({name})", {}) for part in parts for name in (part[0], part[2])}
    found, seeds = [], sorted(set.intersection(*map(set, used.values())))
    for first, sign, second, key in parts if seeds else ():
        mine, other = (np.array([used[x][seed][key or "test_accuracy"][-1] for seed in seeds]) for x in (first, second))
        found.append(verdict(sign, np.log(other / mine) if key else mine - other))
    undecided = "cannot be decided" if "cannot be decided" in found else "does not hold"
    return "".join(set(found)) if len(set(found)) < 2 else "holds in part" if "holds" in found else undecided


def check(ledger: Path) -> tuple[int, int, list[str]]:
    """Returns the number of rows and of verdicts that were recomputed, and the differences."""
    stem, own = ledger.name.removesuffix("-played.jsonl"), ledger.name == "played.jsonl"
    table, document = (ledger.with_name(f"league.{end}" if own else f"{stem}-results.{end}") for end in ("csv", "json"))
    runs, means, faults = defaultdict(lambda: defaultdict(dict)), defaultdict(dict), list[str]()
    for line in map(read, ledger.read_text(encoding="utf-8").splitlines()):
        runs[line["purpose"]][line["label"].rpartition(", seed ")[0]][line["seed"]] = line
    for name, mine in runs["tuning"].items():
        if len(mine) == 3:
            total = sum(-math.inf if math.isnan(line["last"]) else line["last"] for line in mine.values())
            means[name.partition(" tuning ")[0]][next(iter(mine.values()))["knobs"]] = total
    for name, mine in (*runs["ranked"].items(), *runs["claim"].items()):
        tuned, best = next(iter(mine.values()))["knobs"], max(means[name].values(), default=-math.inf)
        faults += [f"{name}: {tuned} is not the best tuned"] if means[name].get(tuned, -math.inf) < best - 1e-9 else []
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    rows = [row for row in rows if f"{row['division']} {row['method']}" in runs["ranked"]]
    for row in rows:
        names = (f"{row['division']} {name}" for name in (row["method"], "no-pruning", "adaptive-pruning"))
        lines, whole, seed = (list(runs["ranked"].get(name, {}).values()) for name in names)
        target = 0.95 * float(np.mean([line["last"] for line in whole])) if whole else math.inf
        horizon_s = max([x["settings"].get("stop.time_s") or x["time_s"][-1] for x in seed] or [0.0])
        faults += row_faults(row, lines, target, horizon_s)
    rules = dict(rule.split(": ") for rule in RULES.strip().replace("; ", "\n").splitlines())
    verdicts = {claim["name"]: claim["verdict"] for claim in json.loads(document.read_text("utf-8"))["claims"]}
    again = {name: judged(name, rules[name], runs["claim"]) for name in verdicts if name in rules}
    faults += [f"{name}: {verdicts[name]}, recomputed {x}" for name, x in again.items() if x and x != verdicts[name]]
    return len(rows), sum(map(bool, again.values())), faults


if __name__ == "__main__":
    num_rows, num_claims, found_faults = check(Path([*sys.argv[1:], "docs/league-played.jsonl"][0]))
    sys.stdout.write("\n".join([*found_faults, f"{num_rows} rows, {num_claims} verdicts recomputed", ""]))
    sys.exit(bool(found_faults))
