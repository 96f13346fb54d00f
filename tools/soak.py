"""Page, runs, kills and resumes together for some minutes: does anything grow, is anything lost or left behind?

    visitors   ask the page of `airprune web` for everything it has, rightly and wrongly, and upload fleets
    leavers    go away in the middle of requests, uploads and streams
    commands   `airprune run`, killed at random moments and resumed, to the bytes of an undisturbed run
    page runs  the same, started, stopped and resumed by the page
    notebook   `ap.run` in this process, stopped and resumed, as a session that stays open does

All of them pause now and then; what server and this process hold is read then. After the warm-up nothing may grow
(`tools.growth` has the rule), every run must end in the right bytes, and at the end no process, lock or temporary
file may be left. Exit status 1 if any of this fails.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from tools import growth

import airprune as ap
from airprune.runs.layout import RunFolder
from airprune.runs.lock import is_locked
from support.processes import PATIENCE_S, is_alive, kill, session_of, start_airprune, wait_for, workers_of
from support.tiny import TINY_TOML, final_bytes

ROUNDS = "[rounds]\nglobal_rounds = 8\n"
SCENARIOS = {
    "pruned": TINY_TOML + ROUNDS,
    "with-memory": TINY_TOML
    + ROUNDS
    + '[compression]\nname = "top-k"\n[aggregation]\ncloud_step = "momentum"\n[selection]\nname = "random-share"\n',
}
READINGS = 16
WARM_UP_SHARE = 0.25
KEPT_FOLDERS = 4
NUM_TABLES = 40  # a server remembers tables up to a limit; these few are all there before the warm-up is over
SETTLED_S = 1.5  # until a server has closed what its clients have left

PAGES = ("/", "/planner", "/runs", "/league", "/reproduction", "/api/runs", "/api/work", "/api/scenario/form")
WRONG = (
    "/api/plan?deadline_ms=-1",
    "/api/runs/curves?run=../etc",
    "/api/plan?fleet=unknown",
    "/nowhere",
    "/static/x/y",
)
BUSY = (429, 503)  # a page with limits may ask a client to wait


class Ended(Exception):
    """The time is over."""


@dataclass
class Soak:
    """What the actors share."""

    folder: Path
    seed: int
    ends_at: float
    counts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    references: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    server: int = 0
    base: str = ""
    token: str = ""
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _pausing: bool = False
    _active: int = 0

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def found(self, sentence: str) -> None:
        with self._lock:
            self.findings[sentence] += 1

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.base, timeout=PATIENCE_S, headers={"X-Airprune-Token": self.token})

    def may_go_on(self, *, is_between: bool = True) -> None:
        """For actors that hold nothing: waits during a pause; when the time is over, ends who is between two works."""
        with self._lock:
            self._active -= 1
            self._lock.notify_all()
            self._lock.wait_for(lambda: not self._pausing)
            self._active += 1
        if is_between and time.monotonic() > self.ends_at:
            raise Ended

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        with self._lock:
            self._pausing = True
            self._lock.wait_for(lambda: self._active == 0)
        try:
            yield
        finally:
            with self._lock:
                self._pausing = False
                self._lock.notify_all()

    def act(self, number: int, actor: Callable[[Soak, random.Random], None]) -> threading.Thread:
        """Calls an actor again and again on a thread of its own."""
        rng = random.Random(f"{self.seed}/{number}")

        def work() -> None:
            try:
                while True:
                    self.may_go_on()
                    actor(self, rng)
                    time.sleep(rng.uniform(0.0, 0.4))
            except Ended:
                pass
            except BaseException as error:
                self.found(f"{actor.__name__}: {type(error).__name__}: {error}")
            finally:
                with self._lock:
                    self._active -= 1
                    self._lock.notify_all()

        with self._lock:
            self._active += 1
        thread = threading.Thread(target=work, name=actor.__name__)
        thread.start()
        return thread


# Who asks the page


def visitor(soak: Soak, rng: random.Random) -> None:
    """A few requests over one connection."""
    with soak.client() as client:
        for _ in range(rng.randint(1, 8)):
            kind = rng.random()
            if kind < 0.15:
                _expect(soak, client.get(rng.choice(WRONG)), range(400, 500))
                soak.count("requests refused")
            elif kind < 0.3:
                _upload(soak, client, rng)
            elif kind < 0.6:
                query = {
                    "deadline_ms": rng.randint(5, 60),
                    "devices_per_edge": rng.randint(1, 40),
                    "seed": rng.randint(0, 999),
                }
                _expect(soak, client.get(rng.choice(["/api/plan", "/api/compared", "/api/plan.csv"]), params=query))
            elif kind < 0.75 and (runs := _listed(soak, client)):
                address = rng.choice(["/api/runs/curves", "/api/runs/differences", "/api/runs/groups"])
                _expect(soak, client.get(address, params={"run": rng.choice(runs)}), (200, 404))
            else:
                _expect(soak, client.get(rng.choice(PAGES)))
            time.sleep(rng.uniform(0.0, 0.3))


def _expect(soak: Soak, answer: httpx.Response, right: range | tuple[int, ...] = (200,)) -> httpx.Response:
    soak.count("requests")
    if answer.status_code in BUSY:
        soak.count("asked to wait")
    elif answer.status_code not in right:
        soak.found(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:200]}")
    return answer


def _listed(soak: Soak, client: httpx.Client) -> list[str]:
    return [row["name"] for row in _expect(soak, client.get("/api/runs")).json().get("runs", [])]


def _table(rng: random.Random, num_devices: int) -> bytes:
    rows = (f"{n},{n // 20},{rng.uniform(5, 90):.3f}\n" for n in range(num_devices))
    return ("device,edge,snr_db\n" + "".join(rows)).encode()


def _upload(soak: Soak, client: httpx.Client, rng: random.Random) -> None:
    number = rng.randrange(NUM_TABLES)
    answer = _expect(soak, client.post("/api/fleet", content=_table(random.Random(number), 70 * number + 1)))
    if answer.status_code == 200:
        soak.count("uploads")
        _expect(soak, client.get("/api/plan", params={"fleet": answer.json()["fleet"]}), (200, 404))


def leaver(soak: Soak, rng: random.Random) -> None:
    """Sends a part of a request, or reads a part of the answer, and is gone."""
    host, port = soak.base.removeprefix("http://").split(":")
    head = f"Host: {host}:{port}\r\n"
    table = _table(rng, 4_000)
    upload = f"POST /api/fleet HTTP/1.1\r\n{head}Content-Length: {len(table)}\r\n\r\n".encode() + table
    asked = [
        upload[: rng.randint(1, len(upload) - 1)],
        f"GET /api/compared?devices_per_edge=60 HTTP/1.1\r\n{head}\r\n".encode(),
        f"GET /api/runs/events HTTP/1.1\r\n{head}\r\n".encode(),
        b"\x16\x03\x01" + rng.randbytes(80),
    ]
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        with contextlib.suppress(ConnectionError):  # the server may be the first to leave
            client.sendall(rng.choice(asked))
            client.settimeout(rng.uniform(0.01, 0.6))
            with contextlib.suppress(TimeoutError):
                client.recv(rng.randint(1, 2_000))
        if rng.random() < 0.5:  # a reset instead of an end
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    soak.count("clients that left in the middle")


# Who runs


def command(soak: Soak, rng: random.Random) -> None:
    """One run by the command line, killed and resumed until it ends."""
    name, folder = _new_run(soak, rng, "command")
    engine = rng.choice([["--engine", "serial"], ["--workers", "1"]])
    for attempt in range(20):
        soak.may_go_on(is_between=False)
        process = start_airprune("run", soak.folder / f"{name}.toml", "--out", folder.path, "--resume", *engine)
        soak.count("resumes" if attempt else "runs")
        if attempt < 3 and rng.random() < 0.75:
            _wait_for_a_moment(process, folder, rng)
            workers = workers_of(process.pid)
            kill(process)
            if process.returncode == -signal.SIGKILL:
                soak.count("kills")
            wait_for(lambda left=workers: not any(map(is_alive, left)), "workers of a killed run leave", patience_s=30)
        else:
            _, errors = process.communicate(timeout=PATIENCE_S)
            if process.returncode != 0:
                soak.found(f"airprune run ended with {process.returncode}: {errors[-300:]}")
                return
        if folder.is_finished and process.returncode == 0:
            break
    _check(soak, name, folder)


def page_run(soak: Soak, rng: random.Random) -> None:
    """One run by the page, stopped or killed once, and resumed."""
    name, folder = _new_run(soak, rng, "page")
    with soak.client() as client:
        start = {"toml": SCENARIOS[name] + '[engine]\nname = "serial"\n', "name": folder.path.name}
        _expect(soak, client.post("/api/work/start", json=start))
        soak.count("runs")
        for attempt in range(20):
            _wait_for_records(folder, lambda: _work(soak, client)["state"] != "ended", rng.randint(1, 12))
            moment = rng.random()
            if attempt < 2 and moment < 0.3:
                soak.count("kills", _kill_run_of(soak.server))
            elif attempt < 2 and moment < 0.7:
                answer = client.post("/api/work/stop", json={})
                soak.count("requests")
                soak.count("stops", answer.status_code == 200)  # else it has just ended by itself
            wait_for(lambda: _work(soak, client)["state"] == "ended", "a run of the page ends")
            if folder.is_finished:
                break
            soak.may_go_on(is_between=False)
            _expect(soak, client.post("/api/work/resume", json={"run": folder.path.name}))
            soak.count("resumes")
    _check(soak, name, folder)


def _kill_run_of(server: int) -> int:
    """kill -9 of the process that the page has started, if it still runs; how many that were."""
    runs = [child for child in psutil.Process(server).children() if "airprune.web.starting.child" in child.cmdline()]
    for run in runs:
        run.kill()
    return len(runs)


def notebook(soak: Soak, rng: random.Random) -> None:
    """One run in this process, stopped after some records, and resumed."""
    name, folder = _new_run(soak, rng, "notebook")
    scenario = ap.Scenario.from_text(SCENARIOS[name]).with_("engine.name", "serial")
    soak.count("runs")
    for stop_after in (rng.randint(0, 8), rng.randint(0, 8), None):
        records = ap.run(scenario, out=folder.path, resume=True)
        for number, _ in enumerate(records):
            if number == stop_after:
                break
        records.close()
        soak.count("stops", stop_after is not None)
        soak.count("resumes", stop_after is not None)
        soak.may_go_on(is_between=False)
    _check(soak, name, folder)
    time.sleep(rng.uniform(1.0, 4.0))


def _new_run(soak: Soak, rng: random.Random, who: str) -> tuple[str, RunFolder]:
    """A scenario and a new folder for it; older folders of the same actor are removed, not to fill the disk."""
    made = sorted(soak.runs.glob(f"{who}-*"))
    for old in made[: max(0, len(made) - KEPT_FOLDERS)]:
        _remove(old)
    number = 1 + max((int(path.name.rpartition("-")[2]) for path in made), default=0)
    return rng.choice(list(SCENARIOS)), RunFolder(soak.runs / f"{who}-{number:05d}")


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def _wait_for_a_moment(process: subprocess.Popen, folder: RunFolder, rng: random.Random) -> None:
    """While it starts, or soon after it has written something."""
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0.0, 3.0))
    else:
        before = _written(folder)
        wait_for(lambda: process.poll() is not None or _written(folder) > before, "a record")
        time.sleep(rng.uniform(0.0, 0.5))


def _written(folder: RunFolder) -> int:
    return folder.records_file.stat().st_mtime_ns if folder.records_file.exists() else 0


def _wait_for_records(folder: RunFolder, is_running: Callable[[], bool], count: int) -> None:
    wait_for(lambda: _num_lines(folder) >= count or not is_running(), "records of a run of the page")


def _num_lines(folder: RunFolder) -> int:
    return folder.records_file.read_bytes().count(b"\n") if folder.records_file.exists() else 0


def _work(soak: Soak, client: httpx.Client) -> dict:
    time.sleep(0.1)
    return _expect(soak, client.get("/api/work")).json()


def _check(soak: Soak, name: str, folder: RunFolder) -> None:
    if not folder.is_finished or final_bytes(folder.path) != soak.references[name]:
        soak.found(f"{folder.path.name} ({name}) did not end in the bytes of an undisturbed run")
    else:
        soak.count("runs that ended in the right bytes")


# The whole


ACTORS = (visitor, visitor, leaver, command, page_run, notebook)


def soaked(minutes: float, seed: int, folder: Path) -> tuple[Soak, dict[str, list[growth.Reading]]]:
    """(counts and findings, what server and this process held after the warm-up)."""
    begun = time.monotonic()
    soak = Soak(folder, seed, ends_at=begun + 60.0 * minutes)
    soak.runs.mkdir()
    (folder / "tmp").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    for name, text in SCENARIOS.items():
        (folder / f"{name}.toml").write_text(text)
        for _ in ap.run(ap.Scenario.from_text(text).with_("engine.name", "serial"), out=folder / f"alone-{name}"):
            pass
        soak.references[name] = final_bytes(folder / f"alone-{name}")

    begun = time.monotonic()
    soak.ends_at = begun + 60.0 * minutes
    errors = (folder / "server-errors.txt").open("w+")
    server = start_airprune("web", soak.runs, "--port", "0", "--allow-run", stderr=errors)
    held: dict[str, list[growth.Reading]] = {"server": [], "driver": []}
    try:
        assert server.stdout is not None
        soak.server = server.pid
        address = httpx.URL(server.stdout.readline().strip())
        soak.base, soak.token = f"http://{address.netloc.decode()}", address.params["token"]
        threads = [soak.act(number, actor) for number, actor in enumerate(ACTORS)]
        for number in range(READINGS):
            share = WARM_UP_SHARE + (1.0 - WARM_UP_SHARE) * number / (READINGS - 1)
            time.sleep(max(0.0, begun + share * 60.0 * minutes - time.monotonic()))
            if time.monotonic() > soak.ends_at and number < READINGS - 1:
                continue
            with soak.paused():
                time.sleep(SETTLED_S)
                gc.collect()
                at_s = time.monotonic() - begun
                held["server"].append(growth.reading(server.pid, at_s=at_s))
                held["driver"].append(growth.reading(os.getpid(), at_s=at_s))
        for thread in threads:
            thread.join()
    finally:
        soak.findings.update(_stopped(server))
    errors.seek(0)
    if "Traceback" in (said := errors.read()):
        soak.found(f"server: {said.count('Traceback')} tracebacks, the last: {said[-600:]}")
    errors.close()
    soak.findings.update(line for who, readings in held.items() for line in growth.findings(who, readings))
    soak.findings.update(left_behind(folder))
    return soak, held


def _stopped(server: subprocess.Popen) -> list[str]:
    """Ends the server as Ctrl-C does; what is wrong with its end."""
    server.send_signal(signal.SIGINT)
    try:
        status = server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
        return ["server: did not end within 60 s after Ctrl-C"]
    finally:
        assert server.stdout is not None
        server.stdout.close()
    left = session_of(server.pid)
    found = [f"server: processes {left} are left of its session"] if left else []
    return found + ([f"server: ended with {status}, not 130"] if status != 130 else [])


def left_behind(folder: Path) -> list[str]:
    """Processes, temporary files, locks and half-written files that nobody needs any more."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            other = entry.name.isdigit() and int(entry.name) != os.getpid()
            if other and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(f"process {entry.name} is left")
    found += [f"{path} is left" for path in sorted((folder / "tmp").iterdir())]
    for path in sorted((folder / "runs").rglob("*")):
        if path.name == ".scratch" or path.name.endswith((".partial", ".tmp")):
            found.append(f"{path} is left")
    found += [f"{path.parent} is still locked" for path in (folder / "runs").rglob(".lock") if is_locked(path.parent)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__.splitlines()[0])
    parser.add_argument("minutes", type=float, help="how long, e.g. 20; memory is judged from 7 minutes on")
    parser.add_argument("--seed", type=int, default=0, help="of what is done, in which order and when")
    wanted = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
    if not 0.0 < wanted.minutes < 100_000.0:
        parser.error(f"MINUTES must be from 0 to 100000, got {wanted.minutes}; example: scripts/soak 20")
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        soak, held = soaked(wanted.minutes, wanted.seed, Path(name))
        tempfile.tempdir = None
    counts = ", ".join(f"{number:,} {what}" for what, number in sorted(soak.counts.items()))
    sys.stdout.write(f"{wanted.minutes:g} minutes, seed {wanted.seed}: {counts}.\n")
    for who, readings in held.items():
        sys.stdout.write(growth.table(who, readings) + "\n")
    for finding, times in soak.findings.items():
        sys.stdout.write(f"FINDING {finding}{f' ({times} times)' if times > 1 else ''}\n")
    sys.stdout.write(f"{len(soak.findings)} findings.\n")
    sys.exit(1 if soak.findings else 0)


if __name__ == "__main__":
    main()
