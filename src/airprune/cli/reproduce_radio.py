"""`airprune reproduce radio`: the findings judged again on one radio after the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airprune.cli.campaign import run_missing
from airprune.cli.console import print_json, say
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError
from airprune.text import counted

if TYPE_CHECKING:
    from airprune.studies.radio.study import RadioStudy


def reproduce_radio(
    seeds: list[int] | None, out: Path | None, ledgers: list[Path], *, only_finished: bool, as_json: bool
) -> None:
    """Trains what is missing, unless only finished runs count; writes tables, figure and verdicts."""
    from airprune.studies.league.ledger import Ledger, read_ledger
    from airprune.studies.radio.rungs import SCHEDULE
    from airprune.studies.radio.study import RadioStudy

    lines = [line for path in ledgers for line in read_ledger(path).lines]
    study = RadioStudy(
        out=out or Path("reproduction") / "radio",
        seeds=tuple(seeds) if seeds else SCHEDULE.seeds,
        recorded=Ledger(lines),
    )
    if not only_finished:
        for run in study.missing():
            run_missing(study.store.campaign_of([run]), study.out, announces=False)
    files, claims = _write(study)
    say(f"{counted(len(files), 'file')} in {study.out}.")
    if as_json:
        print_json({"artefact": "radio", "folder": str(study.out), "files": files, "claims": claims})
        return
    table = plain_table("rung", "claim", "verdict", "why", title="What survives a real radio")
    for claim in claims:
        table.add_row(claim["rung"], claim["text"], claim["verdict"], claim["reason"])
    print_table(table, keys=0)


def _write(study: RadioStudy) -> tuple[list[str], list[dict[str, Any]]]:
    from airprune.results.figures.curves import figure_files, save_figure
    from airprune.studies.league.ledger import LEDGER
    from airprune.studies.radio.findings import by_method, judged
    from airprune.studies.radio.page import markdown, survival_figure
    from airprune.studies.radio.plan_claims import judged_plans
    from airprune.studies.radio.rungs import RUNGS, SCHEDULE, WHOLE
    from airprune.studies.radio.study import PLANS, RESULTS
    from airprune.studies.radio.training_claims import judged_trainings
    from airprune.tables import write_text_atomic

    plans = {name: study.planned(rung) for name, rung in RUNGS.items()}
    results = study.write()
    if WHOLE not in by_method(results, "paper"):
        raise UsageError(
            f"The study needs the runs of {WHOLE} on the paper's radio, which are not finished; run it without "
            "--only-finished, or give a league's played.jsonl as --ledger."
        )
    claims = judged(results, [name for name in RUNGS if by_method(results, name)])
    claims += judged_plans(plans) + judged_trainings(results)
    write_text_atomic(study.out / "radio.md", markdown(results, plans), follow_link=False)
    text = json.dumps(claims, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text_atomic(study.out / "claims.json", text, follow_link=False)
    pictures = figure_files(study.out / "radio")
    save_figure(survival_figure(results, caption=f"{SCHEDULE.note}; tuned on the paper's radio"), *pictures)
    names = [RESULTS, PLANS, LEDGER, "radio.md", "claims.json", *(path.name for path in pictures)]
    return names, claims
