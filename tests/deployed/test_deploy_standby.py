"""A fleet with a standby edge: an edge stays away, another takes its place, and it comes back; real processes."""

from pathlib import Path

import airprune as ap
from support.federation import Processes, rows_of
from support.tiny import final_bytes

SMALL = (
    "model.name=mlp",
    "data.train_samples=40",
    "data.test_samples=20",
    "radio.bandwidth_hz=2e6",
    "rounds.edge_rounds=1",
    "engine.name=serial",
)
SETTINGS = ("--plan-with", "network", "--grace", "120", "--patience", "3")


def submit(fleet: Processes, *changes: str) -> int:
    return int(fleet.ask("submit", fleet.kits / "cloud", "deployed", *SMALL, *changes, *SETTINGS))


def again(run: Path, out: Path, **options: object) -> tuple[bytes, bytes]:
    for _ in ap.run(ap.Scenario.load(str(run / "scenario.toml")), out=out, **options):
        pass
    return final_bytes(out)


def served_by(run: Path, *, after_round: int = 0) -> dict[str, str]:
    rows = rows_of(run / "measured.jsonl")
    return {row["name"]: row["served_by"] for row in rows if row["global_round"] > after_round}


def test_a_standby_edge_serves_until_the_edge_that_stayed_away_is_back(tmp_path):
    with Processes(tmp_path, num_edges=2, devices_per_edge=1, standby_edges=1) as fleet:
        fleet.start_all("--patience", "1")
        fleet.serve()

        # an edge is killed in a job and stays away
        first = submit(fleet, "rounds.global_rounds=4")
        runs = fleet.kits / "cloud/state/runs"
        fleet.wait_for(lambda: any(map(rows_of, runs.glob("*/measured.jsonl"))), "the first round is over")
        fleet.kill("e0")
        fleet.wait_for_job(first)
        run = fleet.job_folder(first)
        assert served_by(run, after_round=3) == {"d0": "e2", "d1": "e1"}
        assert again(run, tmp_path / "first", replay=run) == final_bytes(run)

        # the next job begins with the standby edge, though its wait for devices is long
        second = submit(fleet, "rounds.global_rounds=1", "seed=2")
        fleet.wait_for_job(second)
        assert served_by(fleet.job_folder(second)) == {"d0": "e2", "d1": "e1"}
        assert again(fleet.job_folder(second), tmp_path / "second") == final_bytes(fleet.job_folder(second))

        # it is back, and so are its devices in the next job
        fleet.start("e0")
        fleet.wait_for(lambda: fleet.status().online("edge") == 3, "e0 is back")
        third = submit(fleet, "rounds.global_rounds=1", "seed=3")
        fleet.wait_for_job(third)
        assert served_by(fleet.job_folder(third)) == {"d0": "e0", "d1": "e1"}
        assert again(fleet.job_folder(third), tmp_path / "third") == final_bytes(fleet.job_folder(third))
