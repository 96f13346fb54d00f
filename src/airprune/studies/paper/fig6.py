"""Fig. 6: bandwidth share and pruning ratio of one device as its CPU clock grows.

Four devices of an edge stay at 3 GHz while the fifth, at the same distance, sweeps its clock; once with 20 cycles per
weight, where compute is a fiftieth of the round, once with 400, where it is a third. A device that is pruned to the cap
needs more bandwidth the slower it computes, merely to send its smallest model in time; only above that does a faster
CPU get more.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from airprune.planning import PlanProblem
from airprune.planning.problem import CLASSIFIER_CAP
from airprune.planning.schemes import plan
from airprune.planning.tradeoff import ratio_for_share
from airprune.results.figures.curves import new_figure, note
from airprune.results.figures.styles import styles_for
from airprune.results.measures import MEASURES
from airprune.results.tidy import Rows, column, select
from airprune.studies.claims import Judgement, Verdict, combined
from airprune.studies.paper.claim import Tables, claims_about
from airprune.units import db_to_ratio
from airprune.wireless.channel import Radio, full_band_rate_bps, path_loss_db, snr
from airprune.wireless.latency import seconds_per_weight

CLOCKS_GHZ = (0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
CYCLES = (20, 400)
SHARES = (0.10, 0.15, 0.20, 0.25, 0.30)
DISTANCE_M = 135.0
DEADLINE_S = 0.030


def rows() -> Rows:
    """Returns rows of `kind` optimal, the joint plan at each clock, and given, the ratio at a given share, Eq. (31)."""
    radio = Radio()
    gain = db_to_ratio(-path_loss_db(np.full(5, DISTANCE_M), radio))
    rate = full_band_rate_bps(snr(gain, radio), radio.bandwidth_hz)
    found: Rows = []
    for cycles in CYCLES:
        for clock in CLOCKS_GHZ:
            cpu_hz = np.array([clock * 1e9, 3e9, 3e9, 3e9, 3e9])
            problem = PlanProblem(
                full_band_rate_bps=rate,
                seconds_per_weight=seconds_per_weight(local_iterations=2, cycles_per_weight=cycles, cpu_hz=cpu_hz),
                deadline_s=DEADLINE_S,
                max_pruning_ratio=CLASSIFIER_CAP,
            )
            best = plan(problem)
            common = {"cycles_per_weight": cycles, "clock_ghz": clock}
            ok = best.status[0] == "ok"
            found.append(
                {
                    "kind": "optimal",
                    **common,
                    "bandwidth_share": float(best.bandwidth_share[0]) if ok else None,
                    "pruning_ratio": float(best.pruning_ratio[0]) if ok else None,
                }
            )
            for share in SHARES:
                ratio = ratio_for_share(problem, np.full(5, share))[0]
                found.append(
                    {"kind": "given", **common, "bandwidth_share": share, "pruning_ratio": float(min(ratio, 1.0))}
                )
    return found


def draw(tables: Tables, caption: str) -> Figure:
    """Draws share and ratio against the CPU clock, and the ratio at given shares."""
    table = tables["fig6"]
    figure, axes = new_figure(3)
    for cycles, line in zip(CYCLES, ("-", "--"), strict=True):
        optimal = [r for r in select(table, kind="optimal", cycles_per_weight=cycles) if r["pruning_ratio"] is not None]
        clock = [r["clock_ghz"] for r in optimal]
        label = f"{cycles} cycles per weight"
        axes[0].plot(clock, [r["bandwidth_share"] for r in optimal], line, marker="o", color="#0072B2", label=label)
        axes[1].plot(clock, [r["pruning_ratio"] for r in optimal], line, marker="s", color="#E69F00", label=label)
    styles = styles_for([f"b = {share:g}" for share in SHARES])
    for (label, style), share in zip(styles.items(), SHARES, strict=True):
        given = select(table, kind="given", cycles_per_weight=CYCLES[1], bandwidth_share=share)
        clock, ratio = [r["clock_ghz"] for r in given], [r["pruning_ratio"] for r in given]
        axes[2].plot(clock, ratio, style.line, marker=style.marker, color=style.colour, label=label)
    labels = [MEASURES[name].label for name in ("bandwidth_share", "pruning_ratio", "pruning_ratio")]
    labels[2] += " at a given share"
    for ax, label in zip(axes, labels, strict=True):
        ax.set_xlabel("CPU clock (GHz)")
        ax.set_ylabel(label)
        ax.legend(frameon=False, fontsize=8)
    note(figure, caption)
    return figure


def _more_band_less_pruning(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig6"], kind="given")
    worst = -np.inf
    for cycles in CYCLES:
        for clock in CLOCKS_GHZ:
            ratio = column(select(rows, cycles_per_weight=float(cycles), clock_ghz=clock), "pruning_ratio")
            worst = max(worst, float(np.max(np.diff(ratio))))
    verdict = Verdict.of(worst <= 1e-12)
    reason = f"over {len(rows)} plans the ratio never grows with the share (largest change {worst:+.2g})."
    return Judgement(verdict, reason, {"largest change": worst})


def _faster_cpu_gets_more(tables: Tables, preset: str) -> Judgement:
    parts = []
    for cycles in CYCLES:
        rows = [
            r
            for r in select(tables["fig6"], kind="optimal", cycles_per_weight=float(cycles))
            if r["pruning_ratio"] is not None
        ]
        share, ratio = column(rows, "bandwidth_share"), column(rows, "pruning_ratio")
        lowest = rows[int(share.argmin())]["clock_ghz"]
        share_rises = bool(np.all(np.diff(share) >= -1e-12) and share[-1] > share[0])
        ratio_falls = bool(np.all(np.diff(ratio) <= 1e-12) and ratio[-1] < ratio[0])
        verdict = Verdict.of(share_rises and ratio_falls, partly=ratio_falls or share_rises)
        parts.append(
            Judgement(
                verdict,
                f"{cycles} cycles per weight, {rows[0]['clock_ghz']:g} to {rows[-1]['clock_ghz']:g} GHz: share "
                f"{share[0]:.3f} → {share.min():.3f} → {share[-1]:.3f}, lowest at {lowest:g} GHz, ratio {ratio[0]:.3f} "
                f"→ {ratio[-1]:.3f}; a device pruned to the cap needs more bandwidth the slower it is.",
                {"share": share.round(4).tolist(), "ratio": ratio.round(4).tolist()},
            )
        )
    return combined(parts)


CLAIMS = claims_about(
    "fig6",
    {
        "more-band-prunes-less": (
            "Fig. 6",
            "At the same CPU, more bandwidth means less pruning.",
            _more_band_less_pruning,
        ),
        "faster-cpu-gets-more": (
            "Fig. 6, Remark 2",
            "A faster CPU gets more bandwidth and is pruned less.",
            _faster_cpu_gets_more,
        ),
    },
    by_preset=False,
)
