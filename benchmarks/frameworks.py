"""airprune beside other federated-learning frameworks, on the same work and the same torch, in one run.

    .venv/bin/python benchmarks/frameworks.py [--only flower,fedlab,pfl] [--rounds 3] [--environments FOLDER]

The work is FedAvg of the paper's CNN: 25 devices with 512 images each, batch 128, one local epoch of plain SGD, no
evaluation. Each framework is used as its documentation says (frameworks/run_*.py), in a virtual environment of its own
that is made on demand and kept if `--environments` names a folder. The first round warms up and is not counted.

CPU-seconds are those of all processes of a job, memory is the largest sum of their resident sizes seen (pages that two
processes share count twice). A plain torch loop on one thread runs before and after each of the others; their ratio is
taken to the mean of these two, so that a change of the machine's speed meets both.

That all was really trained shows in two ways. The frameworks' samples are counted where they pass through the model;
airprune tells its own count. And each model must end up where the plain loop's does ("off plain's end": the distance of
the two ends, as a share of the way there). To first order the end does not depend on the order of the samples, so what
remains is a few per cent.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import training
from training import PlainCNN, images, plain_loop, scenario

from airprune.data.shared import save_shared
from airprune.engines.processes import ProcessesEngine
from airprune.models.catalogue import build_model
from airprune.rounds.experiment import Experiment
from airprune.simulation import run_rounds

HERE = Path(__file__).parent
SILENCE_S = 600.0  # a job that reports nothing for so long is given up
SAMPLE_EVERY_S = 0.2
LARGEST_GAP = 0.05  # between two ends, as a share of the way there
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray stays on loopback, on Linux too
    "RAY_worker_niceness": "0",  # beside other work, Ray would let its workers wait behind everybody else
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Framework:
    """Attributes:
    requirement: what pip is told, with its version.
    shown: the packages whose versions are told.
    """

    requirement: str
    driver: str
    shown: tuple[str, ...]


FRAMEWORKS = {
    "flower": Framework("flwr[simulation]==1.41.0", "run_flower.py", ("flwr", "ray")),
    "fedlab": Framework("fedlab==1.3.0", "run_fedlab.py", ("fedlab",)),
    "pfl": Framework("pfl[pytorch]==0.6.0", "run_pfl.py", ("pfl",)),
}


@dataclass(frozen=True)
class Work:
    """`rounds` includes the first one, which is not counted."""

    rounds: int
    num_devices: int
    samples: int
    batch_size: int = 128
    learning_rate: float = 0.01

    @property
    def samples_per_round(self) -> int:
        return self.num_devices * self.samples


@dataclass(frozen=True)
class Measured:
    samples: int
    cpu_s: float
    wall_s: float
    peak_mb: float
    num_processes: int
    update: torch.Tensor

    @property
    def speed(self) -> float:
        return self.samples / self.cpu_s


class Failed(Exception):
    """One line that tells why a framework has no row of numbers."""


# The jobs of this project, each in a process of its own.


def plain_job(work: Work, folder: Path) -> None:
    """Warms up on one device; the model that `plain_loop` builds first is the server's."""
    built: list[PlainCNN] = []

    class Remembered(PlainCNN):
        def __init__(self) -> None:
            super().__init__()
            built.append(self)

    torch.set_num_threads(1)
    report(1, plain_loop(1, work.samples, 1, work.batch_size))
    training.PlainCNN = Remembered  # type: ignore[misc]
    torch.manual_seed(0)
    report(work.rounds, plain_loop(work.num_devices, work.samples, work.rounds, work.batch_size))
    torch.save(built[0].state_dict(), folder / "final.pt")


def airprune_job(work: Work, folder: Path, kernel: str) -> None:
    """One edge that holds all devices, since then an edge round is a round of FedAvg; two workers."""
    settings = scenario(
        1,
        work.num_devices,
        work.rounds,
        batch_size=work.batch_size,
        train__kernel=kernel,
        train__learning_rate=work.learning_rate,
    )
    model = build_model("paper-cnn", input_shape=(1, 28, 28), num_classes=10, seed=0)
    model.load_state_dict(torch.load(folder / "initial.pt"))
    experiment = Experiment.of(settings, model=model, dataset=images(work.num_devices, work.samples))
    job = experiment.job(save_shared(experiment.dataset, str(folder)))
    with ProcessesEngine(job, workers=2) as engine:
        state = experiment.initial_state()
        records = run_rounds(experiment, engine, state)
        for number in range(1, work.rounds + 1):
            report(number, next(records)["num_samples"])
    experiment.model.state_array[:] = state.edge_states[0]
    torch.save(experiment.model.module.state_dict(), folder / "final.pt")


def report(round_number: int, samples: int) -> None:
    sys.stdout.write(f"round {round_number} {samples}\n")  # at one stroke, since two processes may write
    sys.stdout.flush()


# Measuring a job.


def processes_of(job: int) -> dict[int, tuple[float, float]]:
    """{pid: (CPU-seconds, resident MB)} of the processes in a job's session and their descendants.

    The seconds, from the kernel's books, include those of children that have ended and been waited for.
    """
    parent, found, members = {}, {}, []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            pid = int(entry.name)
            parent[pid] = int(fields[1])
            cpu_s = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            found[pid] = cpu_s, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            if int(fields[3]) == job:
                members.append(pid)
    for pid in members:
        members += [child for child, of in parent.items() if of == pid and child not in members]
    return {pid: found[pid] for pid in members}


def measure(command: list[str], work: Work, folder: Path) -> Measured:
    """Runs a job that reports its rounds; counts from its first report to its last."""
    (folder / "final.pt").unlink(missing_ok=True)
    log = folder / "log"
    with log.open("w") as errors:
        job = subprocess.Popen(
            command,
            env=os.environ | QUIET | {"BENCHMARK_FOLDER": str(folder), "FLWR_HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    marks: dict[int, tuple[float, float]] = {}
    samples: dict[int, int] = {}
    peak_mb, most = 0.0, 0
    try:
        for line in lines_of(job):
            processes = processes_of(job.pid)
            peak_mb = max(peak_mb, sum(mb for _, mb in processes.values()))
            most = max(most, len(processes))
            if line.startswith("round "):
                number, count = map(int, line.split()[1:])
                marks.setdefault(number, (sum(cpu for cpu, _ in processes.values()), time.monotonic()))
                samples[number] = samples.get(number, 0) + count
        status = job.wait()
    finally:
        end(job)
    if status or work.rounds not in marks or not (folder / "final.pt").exists():
        raise Failed(f"did not run: {last_line(log)}")
    (start_cpu, start), (end_cpu, stop) = marks[1], marks[work.rounds]
    trained = sum(count for number, count in samples.items() if number > 1)
    before, after = (torch.load(folder / name) for name in ("initial.pt", "final.pt"))
    update = torch.cat([(after[name] - before[name]).flatten() for name in before])
    return Measured(trained, end_cpu - start_cpu, stop - start, peak_mb, most, update)


def lines_of(job: subprocess.Popen) -> Iterator[str]:
    """The job's output as it comes, and an empty line whenever memory is to be looked at."""
    assert job.stdout is not None
    buffered, heard = b"", time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(job.stdout, selectors.EVENT_READ)
        while time.monotonic() - heard < SILENCE_S:
            if not selector.select(SAMPLE_EVERY_S):
                yield ""
                continue
            read = os.read(job.stdout.fileno(), 65536)
            if not read:
                return
            heard = time.monotonic()
            *whole, buffered = (buffered + read).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
    raise Failed(f"reported nothing for {SILENCE_S:.0f} s")


def end(job: subprocess.Popen) -> None:
    """The job, if it still runs, and whatever it left behind."""
    for pid in processes_of(job.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.wait()


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


# The frameworks' environments.


def environment_of(name: str, folder: Path) -> Path:
    """The Python of a framework's environment, which is made if it is not there."""
    framework = FRAMEWORKS[name]
    pins = [
        line
        for line in (HERE.parent / "constraints.txt").read_text().splitlines()
        if line.startswith(("torch==", "numpy=="))
    ]
    python, stamp, wanted = (
        folder / name / "bin" / "python",
        folder / name / "installed",
        [framework.requirement, *pins],
    )
    if stamp.exists() and stamp.read_text().split() == wanted:
        return python
    print(f"Installing {framework.requirement} …", file=sys.stderr)
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder / name)],
        [str(python), "-m", "pip", "install", "--quiet", framework.requirement, *pins],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            trouble = [line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line]
            raise Failed(f"could not be installed: {(trouble or ['no message'])[-1]}")
    stamp.write_text("\n".join(wanted))
    return python


def versions(name: str, python: Path) -> str:
    code = (
        "import sys, importlib.metadata as m; print(*(f'{name} {m.version(name)}' for name in sys.argv[1:]), sep=', ')"
    )
    done = subprocess.run(
        [str(python), "-c", code, *FRAMEWORKS[name].shown], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


# The comparison.


def check_model() -> None:
    """The frameworks' copy of the model computes what `PlainCNN` does."""
    sys.path.append(str(HERE / "frameworks"))
    from work import CNN

    ours, theirs = PlainCNN(), CNN()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(4, 1, 28, 28)
    assert torch.equal(ours(x), theirs(x)), "frameworks/work.py holds another model than training.py"


def prepare(work: Work, folder: Path) -> None:
    (x, y), _ = images(work.num_devices, work.samples)
    np.save(folder / "images.npy", x)
    np.save(folder / "labels.npy", y)
    torch.manual_seed(0)
    torch.save(PlainCNN().state_dict(), folder / "initial.pt")
    (folder / "work.json").write_text(json.dumps(dataclasses.asdict(work)))


def verdict(measured: Measured, apart: float, work: Work) -> str:
    """Empty if the work was the same, but for the order of the samples."""
    expected = work.samples_per_round * (work.rounds - 1)
    if measured.samples != expected:
        return f"NOT THE SAME WORK: {measured.samples:,} samples instead of {expected:,}"
    return "" if apart < LARGEST_GAP else "NOT THE SAME WORK: ends elsewhere"


def main() -> None:
    parser = argparse.ArgumentParser(description="airprune beside other frameworks on the same work")
    parser.add_argument("--only", default=",".join(FRAMEWORKS), help="some of " + ",".join(FRAMEWORKS))
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds; one more warms up")
    parser.add_argument("--environments", type=Path, help="folder that keeps the frameworks' environments")
    parser.add_argument("--devices", type=int, default=25)
    parser.add_argument("--samples", type=int, default=512, help="per device")
    parser.add_argument("--job", choices=["plain", "airprune", "airprune-torch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    work = Work(options.rounds + 1, options.devices, options.samples)
    if options.job:
        folder = Path(os.environ["BENCHMARK_FOLDER"])
        if options.job == "plain":
            plain_job(work, folder)
        else:
            airprune_job(work, folder, "torch" if options.job == "airprune-torch" else "auto")
        return
    wanted = [name for name in options.only.split(",") if name]
    if unknown := set(wanted) - set(FRAMEWORKS):
        parser.error(f"--only knows {', '.join(FRAMEWORKS)}, not {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as passing:
        os.environ["BENCHMARK_FOLDER"] = folder
        check_model()
        prepare(work, Path(folder))
        compare(work, wanted, Path(folder), (options.environments or Path(passing)).absolute())


def compare(work: Work, wanted: list[str], folder: Path, environments: Path) -> None:
    failures: list[tuple[str, Failed]] = []
    jobs = {
        "airprune, 2 workers": own_job("airprune", work),
        "the same, train.kernel=torch": own_job("airprune-torch", work),
    }
    for name in wanted:
        try:
            python = environment_of(name, environments)
            jobs[versions(name, python)] = [str(python), str(HERE / "frameworks" / FRAMEWORKS[name].driver)]
        except Failed as failure:
            failures.append((FRAMEWORKS[name].requirement, failure))
    plain = [measure(own_job("plain", work), work, folder)]
    rows = []
    for title, command in jobs.items():
        print(f"Running {title} …", file=sys.stderr)
        try:
            measured = measure(command, work, folder)
        except Failed as failure:
            failures.append((title, failure))
            continue
        plain.append(measure(own_job("plain", work), work, folder))
        ratio = measured.speed / ((plain[-2].speed + plain[-1].speed) / 2)
        apart = float((measured.update - plain[0].update).norm() / plain[0].update.norm())
        rows.append((title, measured, f"{ratio:.2f} ×", f"{apart:.1%}", verdict(measured, apart, work)))
    speeds = [one.speed for one in plain]
    rows.insert(0, ("plain torch loop, 1 thread", plain[0], f"{min(speeds):,.0f} to {max(speeds):,.0f}", "", ""))
    show(rows)
    for title, failure in failures:
        print(f"{title}: {failure}")


def own_job(job: str, work: Work) -> list[str]:
    sizes = ["--rounds", str(work.rounds - 1), "--devices", str(work.num_devices), "--samples", str(work.samples)]
    return [sys.executable, __file__, "--job", job, *sizes]


def show(rows: list[tuple[str, Measured, str, str, str]]) -> None:
    print(f"{'':30} samples per CPU-s  to plain loop  samples/s on the wall  processes  peak MB  off plain's end")
    for title, one, ratio, apart, trouble in rows:
        print(
            f"{title:30}{one.speed:18,.0f}{ratio:>16}{one.samples / one.wall_s:22,.0f}{one.num_processes:11}"
            f"{one.peak_mb:9,.0f}{apart:>17}  {trouble}".rstrip()
        )


if __name__ == "__main__":
    main()
