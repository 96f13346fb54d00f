"""Links, SINRs, receiver and traces against Sionna 2.2, a simulator of others, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from airprune.cli import main
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.studies.conformance import points
from airprune.wireless import mcs
from airprune.wireless.channel import Radio, path_loss_db
from airprune.wireless.path_loss import PATH_LOSS
from support.docs_blocks import blocks
from support.own_environment import ROOT, own_environment

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "with_sionna"
WANTED = ("torch==2.13.0", "sionna-no-rt==2.2.0", "sionna-rt==2.2.0")
PERCENTILES = [5, 50, 95]
CELLS = ["umi", "uma"]
NOISE_W = 10.0 ** ((-174 + 10 * np.log10(20e6) + 7 - 30) / 10)
DEVICE_W, STATION_W = 10.0 ** ((23 - 30) / 10), 10.0 ** ((44 - 30) / 10)
TRIED_MCS = [3, 9, 15, 21, 27]
SNR_DB = np.arange(-6.0, 30.1, 0.7)


def with_sionna(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess:
    command = [own_environment("sionna", WANTED), *words]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=quiet, capture_output=True, text=True, timeout=3600)


def written_by(script: str, folder: Path, *given: Path) -> dict[str, np.ndarray]:
    done = with_sionna(HERE / script, *given, folder / "out.npz", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(folder / "out.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def drops(tmp_path_factory) -> dict[str, np.ndarray]:
    """40 drops of 285 devices among 19 stations, in a street canyon and below roof-tops."""
    return written_by("drop.py", tmp_path_factory.mktemp("drop"))


@pytest.fixture(scope="module")
def receiver(tmp_path_factory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("receiver")
    bits, code_rate = map(np.array, zip(*mcs._ROWS, strict=True))
    needed_db = 10 * np.log10(mcs.NEEDED_SNR)
    np.savez(
        folder / "mcs.npz", bits=bits, code_rate=code_rate, needed_snr_db=needed_db, tried=TRIED_MCS, snr_db=SNR_DB
    )
    return written_by("receiver.py", folder, folder / "mcs.npz")


@pytest.fixture(scope="module")
def links(drops, tmp_path_factory) -> Callable[[str], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """(name of the cells) -> quantity -> (ours, Sionna's) in dB, of all devices of all drops."""
    folder, known = tmp_path_factory.mktemp("fleet"), {}

    def of(name):
        if name not in known:
            both = [(ours(drops, name, k, folder), theirs(drops, name, k)) for k in range(len(drops[f"{name}_sight"]))]
            known[name] = {
                key: tuple(np.concatenate([side[key] for side in sides]) for sides in zip(*both, strict=True))
                for key in both[0][0]
            }
        return known[name]

    return of


def ours(drops, name, drop, folder):
    """A drop as a fleet, through association, interference and plan of the first round with equal shares."""
    device, station = drops[f"{name}_device_m"][drop], drops[f"{name}_station_m"][drop]
    near = distances(device, station).argmin(axis=0)
    rows = [
        f"{n},{k},{x},{y},{station[k, 0]},{station[k, 1]}"
        for n, (k, (x, y)) in enumerate(zip(near, device, strict=True))
    ]
    (folder / "fleet.csv").write_text("\n".join(["device,edge,x_m,y_m,edge_x_m,edge_y_m", *rows]))
    radio = {"path_loss": name, "noise": "thermal", "transmit_power_dbm": 23.0, "reuse": 1, "carrier_hz": 3.5e9}
    scenario = Scenario().with_values(
        {
            "model.name": "mlp",
            "data.samples_per_device": 2,
            "network.table": str(folder / "fleet.csv"),
            "association.name": "best-rate",
            "plan.scheme": "equal-resolved",
            "plan.deadline_s": 600.0,
            "seed": drop,
            **{f"radio.{key}": value for key, value in radio.items()},
        }
    )
    experiment = Experiment.of(scenario, dataset=points())
    problem = first_round(experiment).problem
    sinr = np.expm1(problem.full_band_rate_bps / 20e6 * np.log(2))
    return coupling(experiment.stations.view(0, 0.0).gains()) | {"SINR": 10 * np.log10(sinr)}


def theirs(drops, name, drop):
    """The same of Sionna's links: every device at its best station, with an equal share of its bandwidth."""
    gains = 10.0 ** ((drops[f"{name}_shadowing_db"][drop] - drops[f"{name}_loss_db"][drop]).T / 10)
    serving, stations = gains.argmax(axis=1), np.arange(gains.shape[1])
    share = 1.0 / np.bincount(serving, minlength=len(stations))[serving]
    heard_w = np.where(stations == serving[:, None], 0.0, share[:, None] * gains * DEVICE_W).sum(axis=0)
    sinr = gains.max(axis=1) * DEVICE_W / (NOISE_W + heard_w[serving])
    return coupling(gains) | {"SINR": 10 * np.log10(sinr)}


def coupling(gains):
    """Gain to the best station, and its SINR if all stations send with their whole power, as in calibrations."""
    best, all_w = gains.max(axis=1), gains.sum(axis=1) * STATION_W
    geometry = best * STATION_W / (NOISE_W + all_w - best * STATION_W)
    return {"coupling gain": 10 * np.log10(best), "geometry": 10 * np.log10(geometry)}


def distances(device, station):
    return np.hypot(*np.moveaxis(device[..., None, :, :] - station[..., :, None, :], -1, 0))


@pytest.mark.parametrize("name", CELLS)
def test_the_path_loss_of_every_link_is_sionnas(drops, name):
    far = distances(drops[f"{name}_device_m"], drops[f"{name}_station_m"])
    loss_db = path_loss_db(far, Radio(path_loss=name), line_of_sight=drops[f"{name}_sight"])
    known = far >= 10.0  # the model's range
    np.testing.assert_allclose(loss_db[known], drops[f"{name}_loss_db"][known], atol=0.01)  # c is 3e8 here
    assert known.sum() > 200_000


@pytest.mark.parametrize("name", CELLS)
def test_line_of_sight_is_as_frequent_and_shadowing_as_wide_as_sionnas(drops, name):
    far, sight = distances(drops[f"{name}_device_m"], drops[f"{name}_station_m"]), drops[f"{name}_sight"]
    chance = PATH_LOSS[name].los_probability(far)
    assert abs(np.sum(sight) - np.sum(chance)) < 10 * np.sqrt(np.sum(chance * (1 - chance)))  # near devices see alike
    for visible, std_db in zip((True, False), PATH_LOSS[name].shadowing_std_db, strict=True):
        assert np.std(drops[f"{name}_shadowing_db"][sight == visible]) == pytest.approx(std_db, rel=0.03)


@pytest.mark.parametrize("quantity", ["coupling gain", "geometry", "SINR"])
@pytest.mark.parametrize("name", CELLS)
def test_drops_are_within_1_db_of_sionnas_at_5_50_and_95_percent(links, name, quantity):
    found, expected = links(name)[quantity]
    assert len(found) == len(expected) == 40 * 285
    np.testing.assert_allclose(np.percentile(found, PERCENTILES), np.percentile(expected, PERCENTILES), atol=1.0)


def test_throughput_is_within_5_percent_of_link_adaptation_to_10_percent_errors(receiver):
    rate = mcs.mcs_rate_bps(10.0 ** (SNR_DB / 10), 1.0)
    usual = (SNR_DB >= 0.0) & (SNR_DB <= 26.0)
    assert np.mean(receiver["outer_errors"][usual]) == pytest.approx(0.1, abs=0.02)
    assert np.sum(rate[usual]) / np.sum(receiver["outer"][usual]) == pytest.approx(1.0, abs=0.05)
    assert 0.74 <= np.mean(receiver["outer"][usual] / np.log2(1 + 10.0 ** (SNR_DB[usual] / 10))) <= 0.82


def test_a_receiver_that_knows_its_snr_exactly_errs_less_and_is_faster(receiver):
    rate = mcs.mcs_rate_bps(10.0 ** (SNR_DB / 10), 1.0)
    usual = (SNR_DB >= 0.0) & (SNR_DB <= 26.0)
    assert np.mean(receiver["inner_errors"][usual]) < 0.03
    assert 0.90 <= np.sum(rate[usual]) / np.sum(receiver["inner"][usual]) <= 0.96


@pytest.mark.parametrize("name", CELLS)
def test_devices_of_a_drop_have_the_throughput_of_sionnas(links, receiver, name):
    sinr_db, theirs_db = links(name)["SINR"]
    rate = mcs.mcs_rate_bps(10.0 ** (sinr_db / 10), 1.0)
    expected = np.interp(theirs_db, SNR_DB, receiver["outer"])
    assert np.mean(rate) == pytest.approx(np.mean(expected), rel=0.05)


def test_blocks_of_ldpc_code_fail_below_and_arrive_above_the_snr_that_an_mcs_needs(receiver):
    below, at, above = receiver["failures"].T
    assert len(at) == len(TRIED_MCS)
    assert np.all(below > 0.1) and np.all(above <= 0.1)  # the 10 % are within 0.7 dB
    assert np.all(at < 0.99)


def test_a_second_transmission_that_is_combined_with_the_first_is_enough(receiver):
    assert np.all(receiver["combined"] == 0.0)


def test_traces_of_the_recipe_for_sionna_rt_plan_and_run(tmp_path, capsys, monkeypatch):
    page = (ROOT / "docs/radio.md").read_text()
    recipe = next(block.content for block in blocks(page) if "from sionna import rt" in block.content)
    done = with_sionna("-c", recipe, cwd=tmp_path)
    if "libLLVM" in done.stderr or "LLVM ERROR" in done.stderr:
        pytest.skip("Sionna RT needs LLVM's library (Debian: apt-get install libllvm19)")
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(tmp_path / "traces.npz") as file:
        time, device, station, gain_db = (file[key] for key in ("time", "device", "station", "gain_db"))
    # Along a street in sight: free space at 3.5 GHz, with walls that reflect.
    x = -60.0 + 20.0 * device + 10.0 * time
    far = np.sqrt((x - np.array([-60.0, 60.0])[station]) ** 2 + 3.0**2 + 8.5**2)
    free_db = 20 * np.log10(3e8 / (4 * np.pi * 3.5e9 * far))
    assert len(gain_db) == 6 * 4 * 2 and np.all(np.abs(gain_db - free_db) < 10.0)
    assert np.corrcoef(gain_db, free_db)[0, 1] > 0.9
    monkeypatch.chdir(tmp_path)
    words = ["smoke", "network.num_edges=2", "network.devices_per_edge=2", "network.traces=traces.npz"]
    assert main(["plan", *words, "--at", "3", "--json"]) == 0
    assert '"devices"' in capsys.readouterr().out
    short = ["association.name=a3", "rounds.global_rounds=2", "--out", "run"]
    assert main(["run", *words, "radio.noise=thermal", *short]) == 0
    assert (tmp_path / "run/records.jsonl").read_text().count("\n") >= 3
