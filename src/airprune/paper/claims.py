"""The sentences of the paper's evaluation as data, each with the test that decides it from the CSV files alone."""

from __future__ import annotations

import numpy as np

from airprune.compare import Estimate
from airprune.paper import fig2, fig3, fig5, fig6
from airprune.paper.judging import (
    SINGLE_SEED_NOISE,
    Claim,
    Judge,
    Judgement,
    Tables,
    Verdict,
    combined,
    judge_better,
    judge_trend,
    shown,
)
from airprune.paper.tidy import column, last_by_seed, select

# "Close" and "about 50 %" need a number before the numbers are seen.
CLOSE_ACCURACY = 0.02
ABOUT_HALF = (0.40, 0.60)


def _ratio_trend(measure: str, rising: bool) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        rows = select(tables["fig2"], preset=preset)
        return combined(
            [
                judge_trend(
                    [f"ρ = {ratio:g}" for ratio in fig2.RATIOS],
                    [last_by_seed(rows, measure, series=fig2.series_label(dataset, r)) for r in fig2.RATIOS],
                    rising=rising,
                    noise=SINGLE_SEED_NOISE[measure],
                    what=f"{dataset}, {measure.replace('_', ' ')}",
                )
                for dataset in fig2.DATASETS
            ]
        )

    return judge


def _deadline_trend(measure: str, rising: bool) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        rows = select(tables["fig3"], preset=preset)
        labels = [fig3.series_label(ms) for ms in fig3.DEADLINES_MS]
        return judge_trend(
            labels,
            [last_by_seed(rows, measure, series=label) for label in labels],
            rising=rising,
            noise=SINGLE_SEED_NOISE[measure],
            what=measure.replace("_", " "),
        )

    return judge


def _longer_deadline_prunes_less(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig3_ratios"], scheme="optimal")
    ratio = np.array([column(select(rows, deadline_ms=float(ms)), "pruning_ratio") for ms in fig3.DEADLINES_MS])
    worst = float(np.max(np.diff(ratio, axis=0)))
    numbers = {f"{ms} ms": f"{r.mean():.3f}" for ms, r in zip(fig3.DEADLINES_MS, ratio, strict=True)}
    holds = worst <= 1e-9 and ratio[-1].mean() < ratio[0].mean()
    listed = ", ".join(f"{key}: {value}" for key, value in numbers.items())
    reason = f"mean ratio of the edge's devices {listed}; no single device is pruned more at a longer deadline."
    if not holds:
        reason = f"mean ratio {listed}; a device's ratio grows by up to {worst:.3f} from one deadline to the next."
    return Judgement(verdict=Verdict.HOLDS if holds else Verdict.FAILS, reason=reason, numbers=numbers)


def _latency(tables: Tables, topology: str, scheme: str) -> float:
    (row,) = select(tables["table2"], topology=topology, scheme=scheme)
    return float(row["mean_ms"])


def _flat_is_ten_times_slower(tables: Tables, preset: str) -> Judgement:
    factors = {
        scheme: _latency(tables, "non-HFL", scheme) / _latency(tables, "HFL", scheme)
        for scheme in ("optimal", "equal-reused", "no-pruning")
    }
    verdict = (
        Verdict.HOLDS if min(factors.values()) > 10 else Verdict.PARTLY if max(factors.values()) > 10 else Verdict.FAILS
    )
    listed = ", ".join(f"{scheme} {factor:.1f} ×" for scheme, factor in factors.items())
    return Judgement(
        verdict=verdict,
        reason=f"{listed}. The optimal scheme's factor is the ratio of the two deadlines, which the authors chose.",
        numbers={scheme: round(factor, 2) for scheme, factor in factors.items()},
    )


def _optimal_is_fastest(tables: Tables, preset: str) -> Judgement:
    parts = []
    for topology in ("HFL", "non-HFL"):
        latency = [_latency(tables, topology, s) for s in ("optimal", "equal-reused", "no-pruning")]
        holds = latency[0] < latency[1] < latency[2]
        parts.append(
            Judgement(
                verdict=Verdict.HOLDS if holds else Verdict.FAILS,
                reason=f"{topology}: {latency[0]:.1f}, {latency[1]:.1f} and {latency[2]:.1f} ms.",
                numbers={topology: [round(x, 2) for x in latency]},
            )
        )
    return combined(parts)


def _latencies_agree(tables: Tables, preset: str) -> Judgement:
    deviation = {f"{r['topology']}, {r['scheme']}": r["mean_ms"] / r["paper_ms"] - 1 for r in tables["table2"]}
    worst = max(deviation, key=lambda key: abs(deviation[key]))
    verdict = Verdict.HOLDS if abs(deviation[worst]) <= 0.05 else Verdict.FAILS
    reason = f"largest deviation {deviation[worst]:+.1%} ({worst}), distances inferred since the paper gives none."
    return Judgement(verdict=verdict, reason=reason, numbers={key: f"{value:+.1%}" for key, value in deviation.items()})


def _close_to_no_pruning(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig4"], preset=preset)
    optimal = last_by_seed(rows, "test_accuracy", series="optimal")
    whole = last_by_seed(rows, "test_accuracy", series="no-pruning")
    gap = Estimate.of(list(whole - optimal))
    half = 0.0 if np.isnan(gap.half_width) else gap.half_width
    numbers = {
        "optimal": shown(Estimate.of(list(optimal)), 100),
        "no pruning": shown(Estimate.of(list(whole)), 100),
        "gap in points": shown(gap, 100),
    }
    sentence = f"{numbers['optimal']} % against {numbers['no pruning']} %, a gap of {numbers['gap in points']} points"
    if abs(gap.mean) + half <= CLOSE_ACCURACY:
        return Judgement(verdict=Verdict.HOLDS, reason=f"{sentence}.", numbers=numbers)
    if abs(gap.mean) - half > CLOSE_ACCURACY:
        return Judgement(
            verdict=Verdict.FAILS,
            reason=f"{sentence}, more than {CLOSE_ACCURACY:.0%}. At 30 ms the exact optimum prunes the far devices of "
            "an edge to the cap and leaves the near ones whole; every weight is averaged over those that kept it.",
            numbers=numbers,
        )
    return Judgement(
        verdict=Verdict.UNDECIDED, reason=f"{sentence}; the interval straddles {CLOSE_ACCURACY:.0%}.", numbers=numbers
    )


def _about_half(measure: str, what: str) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        rows = select(tables["fig4"], preset=preset)
        saved = 1.0 - last_by_seed(rows, measure, series="optimal") / last_by_seed(rows, measure, series="no-pruning")
        estimate = Estimate.of(list(saved))
        low, high = ABOUT_HALF
        verdict = (
            Verdict.HOLDS if low <= estimate.mean <= high else Verdict.PARTLY if estimate.mean > 0.25 else Verdict.FAILS
        )
        reason = f"{what} falls by {shown(estimate, 100)} % (about half: {low:.0%} to {high:.0%})."
        return Judgement(verdict=verdict, reason=reason, numbers={"saved": shown(estimate, 100)})

    return judge


def _hierarchy_wins(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig4"], preset=preset)
    optimal = last_by_seed(rows, "test_accuracy", series="optimal")
    noise = SINGLE_SEED_NOISE["test_accuracy"]
    return combined(
        [
            judge_better(
                optimal,
                last_by_seed(rows, "test_accuracy", series=other),
                noise=noise,
                what=f"against {meaning}",
                names=("hierarchical", other),
            )
            for other, meaning in (
                ("one edge", "one edge with its own five devices"),
                ("flat", "all devices on the cloud"),
            )
        ]
    )


def _iid_wins(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig5"], preset=preset)
    parts = []
    for scheme in fig5.SCHEMES:
        iid = last_by_seed(rows, "test_accuracy", series=fig5.series_label("IID", scheme))
        for partition in list(fig5.PARTITIONS)[1:]:
            other = last_by_seed(rows, "test_accuracy", series=fig5.series_label(partition, scheme))
            parts.append(
                judge_better(
                    iid, other, noise=SINGLE_SEED_NOISE["test_accuracy"], what=scheme, names=("IID", partition)
                )
            )
    return combined(parts)


def _more_band_less_pruning(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig6"], kind="given")
    worst = -np.inf
    for cycles in fig6.CYCLES:
        for clock in fig6.CLOCKS_GHZ:
            ratio = column(select(rows, cycles_per_weight=float(cycles), clock_ghz=clock), "pruning_ratio")
            worst = max(worst, float(np.max(np.diff(ratio))))
    verdict = Verdict.HOLDS if worst <= 1e-12 else Verdict.FAILS
    reason = f"over {len(rows)} plans the ratio never grows with the share (largest change {worst:+.2g})."
    return Judgement(verdict=verdict, reason=reason, numbers={"largest change": worst})


def _faster_cpu_gets_more(tables: Tables, preset: str) -> Judgement:
    parts = []
    for cycles in fig6.CYCLES:
        rows = [
            r
            for r in select(tables["fig6"], kind="optimal", cycles_per_weight=float(cycles))
            if r["pruning_ratio"] is not None
        ]
        share, ratio = column(rows, "bandwidth_share"), column(rows, "pruning_ratio")
        lowest = rows[int(share.argmin())]["clock_ghz"]
        share_rises = bool(np.all(np.diff(share) >= -1e-12) and share[-1] > share[0])
        ratio_falls = bool(np.all(np.diff(ratio) <= 1e-12) and ratio[-1] < ratio[0])
        verdict = (
            Verdict.HOLDS
            if share_rises and ratio_falls
            else Verdict.PARTLY
            if ratio_falls or share_rises
            else Verdict.FAILS
        )
        parts.append(
            Judgement(
                verdict=verdict,
                reason=f"{cycles} cycles per weight, {rows[0]['clock_ghz']:g} to {rows[-1]['clock_ghz']:g} GHz: share "
                f"{share[0]:.3f} → {share.min():.3f} → {share[-1]:.3f}, lowest at {lowest:g} GHz, ratio {ratio[0]:.3f} "
                f"→ {ratio[-1]:.3f}; a device pruned to the cap needs more band the slower it is.",
                numbers={"share": share.round(4).tolist(), "ratio": ratio.round(4).tolist()},
            )
        )
    return combined(parts)


def _bound_is_vacuous(tables: Tables, preset: str) -> Judgement:
    rows = tables["bound"]
    last = rows[-1]
    measured, corrected, printed = (float(last[k]) for k in ("measured", "corrected", "paper"))
    trivial = float(last["trivial"])
    verdict = Verdict.HOLDS if measured <= corrected else Verdict.FAILS
    reason = (
        f"measured {measured:.3g}, bound {corrected:.3g} (as printed {printed:.3g}); the assumption on gradients alone "
        f"gives {trivial:.3g}, so the theorem says {'less' if corrected > trivial else 'more'} than its own premise."
    )
    return Judgement(
        verdict=verdict, reason=reason, numbers={"measured": measured, "corrected": corrected, "paper": printed}
    )


def _erratum(key: str) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        (row,) = select(tables["errata"], name=key)
        verdict = Verdict.HOLDS if row["observed"] == "yes" else Verdict.FAILS
        return Judgement(verdict=verdict, reason=str(row["evidence"]))

    return judge


CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="loss-grows-with-ratio",
        where="Fig. 2(a), (b)",
        text="Test loss grows with the pruning ratio on MNIST and Fashion-MNIST.",
        tables=("fig2",),
        judge=_ratio_trend("test_loss", rising=True),
    ),
    Claim(
        name="accuracy-falls-with-ratio",
        where="Fig. 2(c)",
        text="Test accuracy falls as the pruning ratio grows.",
        tables=("fig2",),
        judge=_ratio_trend("test_accuracy", rising=False),
    ),
    Claim(
        name="longer-deadline-lower-loss",
        where="Fig. 3(a)",
        text="A longer deadline gives a lower test loss.",
        tables=("fig3",),
        judge=_deadline_trend("test_loss", rising=False),
    ),
    Claim(
        name="longer-deadline-higher-accuracy",
        where="Fig. 3(b)",
        text="A longer deadline gives a higher test accuracy.",
        tables=("fig3",),
        judge=_deadline_trend("test_accuracy", rising=True),
    ),
    Claim(
        name="longer-deadline-prunes-less",
        where="Fig. 3(c)",
        text="A longer deadline needs smaller pruning ratios.",
        tables=("fig3_ratios",),
        judge=_longer_deadline_prunes_less,
        by_preset=False,
    ),
    Claim(
        name="flat-ten-times-slower",
        where="Table II",
        text="A round without hierarchy takes more than ten times as long.",
        tables=("table2",),
        judge=_flat_is_ten_times_slower,
        by_preset=False,
    ),
    Claim(
        name="optimal-fastest",
        where="Table II",
        text="Optimal pruning has the shortest round, then equal resources, then no pruning.",
        tables=("table2",),
        judge=_optimal_is_fastest,
        by_preset=False,
    ),
    Claim(
        name="table-2-numbers",
        where="Table II",
        text="The printed latencies.",
        tables=("table2",),
        judge=_latencies_agree,
        by_preset=False,
    ),
    Claim(
        name="optimal-close-to-no-pruning",
        where="Fig. 4(b), abstract",
        text="Optimal pruning at 30 ms is about as accurate as no pruning.",
        tables=("fig4",),
        judge=_close_to_no_pruning,
    ),
    Claim(
        name="latency-halved",
        where="Section VI, conclusions",
        text="Optimal pruning needs about 50 % less time than no pruning.",
        tables=("fig4",),
        judge=_about_half("time_s", "simulated time of the whole run"),
    ),
    Claim(
        name="communication-halved",
        where="Fig. 4(c), abstract",
        text="Optimal pruning uploads about 50 % fewer weights than no pruning.",
        tables=("fig4",),
        judge=_about_half("uploaded_weights", "the number of uploaded weights"),
    ),
    Claim(
        name="hierarchy-beats-flat",
        where="Fig. 4(a), (b)",
        text="Hierarchical pruning is much more accurate than pruning without hierarchy.",
        tables=("fig4",),
        judge=_hierarchy_wins,
    ),
    Claim(
        name="iid-beats-non-iid",
        where="Fig. 5",
        text="IID data gives better accuracy than non-IID data.",
        tables=("fig5",),
        judge=_iid_wins,
    ),
    Claim(
        name="more-band-prunes-less",
        where="Fig. 6",
        text="At the same CPU, more bandwidth means less pruning.",
        tables=("fig6",),
        judge=_more_band_less_pruning,
        by_preset=False,
    ),
    Claim(
        name="faster-cpu-gets-more",
        where="Fig. 6, Remark 2",
        text="A faster CPU gets more bandwidth and is pruned less.",
        tables=("fig6",),
        judge=_faster_cpu_gets_more,
        by_preset=False,
    ),
    Claim(
        name="theorem-1-holds",
        where="Theorem 1",
        text="The mean squared gradient stays below the bound (corrected constants).",
        tables=("bound",),
        judge=_bound_is_vacuous,
        by_preset=False,
    ),
    Claim(
        name="erratum-negative-bandwidth",
        where="Theorem 3 (our erratum)",
        text="The printed closed form hands out negative bandwidth in the paper's own range.",
        tables=("errata",),
        judge=_erratum("negative-bandwidth"),
        by_preset=False,
    ),
    Claim(
        name="erratum-remark-2",
        where="Remark 2 (our erratum)",
        text="In the paper's range the worse channel gets less bandwidth, not more.",
        tables=("errata",),
        judge=_erratum("remark-2"),
        by_preset=False,
    ),
    Claim(
        name="erratum-identity",
        where="Theorem 3 (our erratum)",
        text="V1 V4 + V2 V3 equals q̂ W_fully T_th identically.",
        tables=("errata",),
        judge=_erratum("identity"),
        by_preset=False,
    ),
    Claim(
        name="erratum-h2",
        where="Eq. (24) (our erratum)",
        text="H2 as printed does not follow from Eq. (58).",
        tables=("errata",),
        judge=_erratum("h2"),
        by_preset=False,
    ),
    Claim(
        name="erratum-frozen-mask",
        where="Eq. (2) (our erratum)",
        text="Read literally, Eq. (2) gives every pruned weight importance zero for ever.",
        tables=("errata",),
        judge=_erratum("frozen-mask"),
        by_preset=False,
    ),
)
