"""Runs of a campaign: an estimate first, progress meanwhile, and one sentence when a signal stops them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from airprune.cli.console import say
from airprune.cli.progress import announce_duration, live_line, repeated_line, show_progress
from airprune.cli.stopping import STOPPED, terminated_like_ctrl_c
from airprune.errors import Diverged

if TYPE_CHECKING:
    from airprune.studies.campaign import Campaign, CampaignRun, Outcome


@terminated_like_ctrl_c()
def run_missing(campaign: Campaign, out: Path, *, announces: bool = True) -> list[Outcome]:
    """Runs everything that is not finished and shows progress meanwhile; returns the runs that failed.

    Args:
      announces: False for a step of many, whose caller says how long all of them take.
    """
    from airprune.studies.campaign import at_a_time

    engine, total, missing = campaign.engine, len(campaign.runs), campaign.missing()
    done, failures = total - len(missing), []
    if done:
        say(f"{done} of {total} runs were finished before.")
    if not missing:
        return []
    if announces:
        announce_duration(
            [run.scenario for run in missing],
            at_a_time=at_a_time(engine, len(missing)),
            elsewhere=engine is not None and engine.scheduler is not None,
        )

    def watch(run: CampaignRun, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        earlier, label = len(campaign.run_folder(run).records()), f"[{done + 1}/{total}] {run.label}"
        try:
            yield from show_progress(records, run.scenario, label=label, done=earlier)
        except Diverged as error:
            say(f"{label}: {error}")

    try:
        with contextlib.closing(campaign.outcomes(missing, watch=watch)) as outcomes:
            for outcome in outcomes if engine is None else _show_progress(outcomes, campaign, done=done):
                if outcome.trouble is None:
                    done += 1
                else:
                    failures.append(outcome)
    except KeyboardInterrupt:
        say(f"Stopped with {done} of {total} runs finished; {out} keeps what is done. The same command continues.")
        raise typer.Exit(STOPPED) from None
    return failures


def end_with(failures: Sequence[Outcome]) -> None:
    """Prints each failure; the command fails if there is one."""
    for failure in failures:
        say(f"failed: {failure.run.label}: {failure.trouble}")
    if failures:
        raise typer.Exit(1)


def _show_progress(outcomes: Iterable[Outcome], campaign: Campaign, *, done: int) -> Iterator[Outcome]:
    """Yields the outcomes and shows them meanwhile: one bar on a terminal, plain lines elsewhere."""
    total = len(campaign.runs)
    if not sys.stderr.isatty():
        started, finished = time.monotonic(), done
        with repeated_line(
            lambda: f"[{finished}/{total}] runs finished · {_duration(time.monotonic() - started)} elapsed"
        ):
            for outcome in outcomes:
                finished += 1
                left_s = (time.monotonic() - started) / (finished - done) * (total - finished)
                left = f" · {_duration(left_s)} left" if left_s else ""
                say(f"[{finished}/{total}] {outcome.run.label}: {_words(outcome, campaign)}{left}")
                yield outcome
        return
    with live_line(BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("runs")) as progress:
        task = progress.add_task("", total=total, completed=done, words="starting …" if done < total else "")
        for outcome in outcomes:
            words = f"{_words(outcome, campaign)} · {outcome.run.label}"
            progress.update(task, advance=1, words=escape(words))
            yield outcome


def _words(outcome: Outcome, campaign: Campaign) -> str:
    if outcome.trouble is not None:
        return "failed"
    last = campaign.last_round(outcome.run) or {}
    if "diverged" in last:
        return "diverged"
    accuracy = last.get("test_accuracy")
    return "finished" if accuracy is None else f"accuracy {accuracy:.1%}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
