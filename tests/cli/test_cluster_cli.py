"""`airprune cluster`: certificates, a scheduler and workers, as real processes on loopback."""

import contextlib
import datetime
import gc
import itertools
import os
import shutil
import signal
import ssl
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cryptography import x509
from distributed import Client

from airprune.cli import main
from airprune.engines.cluster.certificates import make_certificates, security_of
from airprune.engines.cluster.crew import is_loopback
from airprune.extras import install_command
from support.cluster_services import hear, service, worker_processes
from support.processes import PATIENCE_S, airprune, kill, start_airprune, wait_for, wait_until_gone
from support.tiny import tiny_file

ROLES = ("ca", "scheduler", "worker", "client")


@pytest.fixture
def command(capsys, monkeypatch):
    """One command within this process: (exit status, stderr)."""
    for name in (
        "PYTHONPATH",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "DASK_LOGGING__DISTRIBUTED",
    ):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # the worker's settings end with the test

    def call(*arguments: object) -> tuple[int, str]:
        status = main([str(argument) for argument in arguments])
        return status, capsys.readouterr().err

    return call


def family(process: subprocess.Popen) -> list[int]:
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """`ours` and `theirs`: certificates of two authorities."""
    folder = tmp_path_factory.mktemp("cluster")
    make_certificates(folder / "ours")
    make_certificates(folder / "theirs")
    return folder


@pytest.fixture(scope="module")
def address(folder) -> Iterator[str]:
    """The address of a scheduler that speaks TLS."""
    options = ("--port", 0, "--tls", folder / "ours", "--scheduler-file", folder / "scheduler.json")
    with service("scheduler", *options) as process:
        address = process.stdout.readline().strip()
        assert address.startswith("tls://127.0.0.1:")
        yield address


def num_workers(address: str, folder: Path) -> int:
    with Client(address, security=security_of(folder / "ours", "client"), set_as_default=False) as client:
        return len(client.scheduler_info(n_workers=-1)["workers"])


# airprune cluster certificates


def test_certificates_are_signed_by_the_authority_and_their_keys_are_private(tmp_path, command):
    status, said = command("cluster", "certificates", tmp_path / "tls", "--days", 7)
    assert status == 0 and "worker-key.pem" in said
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    found = {role: x509.load_pem_x509_certificate((tmp_path / "tls" / f"{role}.pem").read_bytes()) for role in ROLES}
    for role, certificate in found.items():
        assert stat.S_IMODE((tmp_path / "tls" / f"{role}-key.pem").stat().st_mode) == 0o600
        certificate.verify_directly_issued_by(found["ca"])
        left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        assert datetime.timedelta(days=6) < left < datetime.timedelta(days=8)
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert is_authority == (role == "ca")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """In memory; raises what either side objects to."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass


def test_the_two_ends_of_a_connection_accept_each_other_within_one_authority_only(folder):
    server = security_of(folder / "ours", "scheduler").get_listen_args("scheduler")["ssl_context"]
    assert server.verify_mode is ssl.CERT_REQUIRED
    for role in ("worker", "client"):
        shake_hands(server, security_of(folder / "ours", role).get_connection_args(role)["ssl_context"])
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(server, security_of(folder / "theirs", role).get_connection_args(role)["ssl_context"])


def test_every_role_reaches_only_whom_it_calls(folder):
    """Workers call workers, too, at other addresses than the scheduler's."""
    met = set()
    for caller, called in itertools.product(ROLES[1:], ROLES[1:]):
        server = security_of(folder / "ours", called).get_listen_args(called)["ssl_context"]
        with contextlib.suppress(ssl.SSLCertVerificationError):
            shake_hands(server, security_of(folder / "ours", caller).get_connection_args(caller)["ssl_context"])
            met.add((caller, called))
    assert met == {("client", "scheduler"), ("worker", "scheduler"), ("scheduler", "worker")}


@pytest.fixture
def poser(folder, tmp_path) -> Iterator[str]:
    """The address of a scheduler that has a worker's certificate."""
    shutil.copytree(folder / "ours", tmp_path / "posing")
    for end in (".pem", "-key.pem"):
        shutil.copy(tmp_path / "posing" / f"worker{end}", tmp_path / "posing" / f"scheduler{end}")
    with service("scheduler", "--port", 0, "--tls", tmp_path / "posing") as scheduler:
        yield scheduler.stdout.readline().strip()


def test_a_workers_certificate_cannot_pose_as_the_scheduler(poser, folder, tmp_path, command):
    status, said = command("cluster", "worker", "--workers", 1, poser, "--tls", folder / "ours")
    assert status == 1 and said.startswith("error: The scheduler's certificate is refused (Hostname mismatch")
    status, said = command("run", "smoke", "--out", tmp_path / "run", "--scheduler", poser, "--tls", folder / "ours")
    assert status == 1 and said.startswith(f"error: No Dask scheduler answers at {poser} (")


def test_certificates_are_never_replaced(tmp_path, command):
    assert command("cluster", "certificates", tmp_path)[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert command("cluster", "certificates", tmp_path) == (
        2,
        f"error: {tmp_path} already holds certificates; remove them first, or choose another folder.\n",
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    status, said = command("cluster", "certificates", tmp_path / "ca.pem")
    assert status == 2 and said.startswith(f"error: {tmp_path}/ca.pem cannot take certificates: ")


# What is refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["scheduler", "--host", "0.0.0.0"],
            "A scheduler on '0.0.0.0' without TLS lets any process that reaches it run",
        ),
        (["scheduler", "--host", "::"], "or --insecure to insist."),
        (["scheduler", "--tls", "nowhere"], "nowhere/ca.pem is missing; make certificates with"),
        (["scheduler", "--scheduler-file", "nowhere/scheduler.json"], "nowhere/scheduler.json cannot be written"),
        (["worker", "nowhere"], "must be an address like tls://host:8786 or a scheduler file, got 'nowhere'."),
        (["worker", "tls://127.0.0.1"], "must be an address like tls://host:8786"),
        (["worker", "tls://127.0.0.1:8786"], "wants certificates: give --tls FOLDER."),
        (["worker", "tcp://203.0.113.7:8786"], "lets any process that reaches it run code on this machine"),
        (["worker", "tcp://127.0.0.1:8786", "--tls", "OURS"], "which is not encrypted."),
        (["worker", "tcp://127.0.0.1:8786", "--memory-limit", "much"], "--memory-limit must be a size like 2GB"),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence(arguments, words, command, folder):
    given = [str(folder / "ours") if argument == "OURS" else argument for argument in arguments]
    more = ["--port", 0] if arguments[0] == "scheduler" else []
    status, said = command("cluster", *given, *more)
    assert status == 2 and said.startswith("error: ") and said.count("\n") == 1
    assert words in said


def test_a_missing_package_is_named_with_its_way_out(command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert command("cluster", "scheduler", "--dashboard") == (
        2,
        f"error: airprune cluster needs the extra `cluster`: {install_command('cluster')}\n",
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "bokeh" or None)
    status, said = command("cluster", "scheduler", "--port", 0, "--dashboard")
    assert (status, said) == (2, "error: --dashboard needs the package bokeh: pip install bokeh.\n")


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False)]
)
def test_loopback_is_known_by_name_and_address(host, loopback):
    assert is_loopback(host) == loopback


def test_the_options_of_a_run_imply_dask_and_contradictions_are_refused(command):
    run = ("run", "smoke", "--scheduler", "tcp://127.0.0.1:9")
    assert command(*run, "--engine", "serial") == (
        2,
        "error: --scheduler is for the engine dask, got --engine serial; leave one of the two out.\n",
    )
    assert command("run", "smoke", "--tls", "somewhere")[1].startswith("error: --tls goes with the address of a sched")
    assert command(*run, "--tls", "somewhere")[1].endswith("got tcp://127.0.0.1:9, which is not encrypted.\n")


def test_only_members_of_the_authority_reach_the_scheduler(address, folder, tmp_path, command):
    plain = address.replace("tls://", "tcp://")
    worker = ("cluster", "worker", "--workers", 1, "--death-timeout", 0.1)
    status, said = command(*worker, address, "--tls", folder / "theirs")
    assert status == 1 and said.startswith("error: The scheduler's certificate is refused")
    assert said.endswith(f"signed by the authority in {folder}/theirs/ca.pem.\n") and said.count("\n") == 1
    status, said = command(*worker, plain)
    assert status == 1 and said.splitlines()[-1].startswith(f"error: No scheduler answers at {plain} (")
    assert said.endswith("If it speaks TLS, use its tls:// address and --tls FOLDER.\n")

    # The scheduler looks as closely: an own certificate of theirs beside our authority's.
    mixed = tmp_path / "mixed"
    make_certificates(mixed)
    (mixed / "ca.pem").write_bytes((folder / "ours" / "ca.pem").read_bytes())
    status, said = command(*worker, address, "--tls", mixed)
    assert status == 1 and f"{mixed}/worker.pem" in said  # who hangs up first decides how it is put

    run = ("run", "smoke", "--out", tmp_path / "run", "--scheduler")
    assert command(*run, address) == (2, f"error: The scheduler at {address} wants certificates: give --tls FOLDER.\n")
    status, said = command(*run, address, "--tls", folder / "theirs")
    assert status == 1 and said.startswith(f"error: No Dask scheduler answers at {address} (") and said.count("\n") == 1
    assert not (tmp_path / "run").exists()
    assert num_workers(address, folder) == 0


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize(
    ("scheduler", "status", "words"),
    [
        ("tcp://127.0.0.1:1", 1, "No Dask scheduler answers at tcp://127.0.0.1:1 ("),
        ("tls://127.0.0.1:1", 2, "The scheduler at tls://127.0.0.1:1 wants certificates: engine.tls must name"),
        ("nowhere.json", 2, "Scenario.engine.scheduler must be an address like tls://host:8786 or a scheduler file"),
    ],
)
def test_a_run_that_finds_no_cluster_leaves_nothing_and_the_next_try_is_a_first_one(
    tmp_path, command, monkeypatch, scheduler, status, words
):
    monkeypatch.setattr("airprune.engines.cluster.connection._CONNECT_S", 0.5)
    run = ("run", tiny_file(tmp_path, global_rounds=1), "--out", tmp_path / "runs" / "run")
    found, said = command(*run, "engine.name=dask", f"engine.scheduler={scheduler}")
    assert found == status and said.startswith(f"error: {words}") and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]
    assert command(*run, "--engine", "serial")[0] == 0


def test_ctrl_c_before_a_cluster_is_found_leaves_nothing(tmp_path):
    out = tmp_path / "runs" / "run"
    process = start_airprune("run", tiny_file(tmp_path), "--out", out, "--scheduler", "tcp://127.0.0.1:1")
    wait_for((out / ".scratch").exists, "it should look for the scheduler")
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=PATIENCE_S) == ("", "Stopped before there was a run; nothing is kept.\n")
    assert process.returncode == 130 and [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


# Dask leaves the socket that it could not bind to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_port_in_use_and_a_foreign_host_are_one_sentence(address, command):
    port = address.rpartition(":")[2]
    assert command("cluster", "scheduler", "--port", port) == (
        1,
        f"error: --port must be free, got {port}, in use. Use --port 0 for any free one.\n",
    )
    status, said = command("cluster", "scheduler", "--port", 0, "--host", "203.0.113.7", "--insecure")
    assert status == 2 and said.startswith("error: --host must be an address of this machine, got '203.0.113.7': ")
    gc.collect()


def test_an_absent_scheduler_is_waited_for_and_then_one_sentence(tmp_path, command):
    status, said = command("cluster", "worker", tmp_path / "scheduler.json", "--death-timeout", 0.5)
    waiting, error = said.splitlines()
    assert status == 1 and error.startswith(f"error: No scheduler answers at {tmp_path}/scheduler.json (")
    assert waiting.startswith("Waiting up to 0.5 s for the scheduler at ")


# Work


def test_workers_of_a_scheduler_file_give_the_serial_bytes_and_do_not_outlive_a_killed_parent(
    address, folder, tmp_path
):
    run = ("run", "smoke", "rounds.global_rounds=1")
    worker = ("worker", folder / "scheduler.json", "--tls", folder / "ours", "--workers", 2)
    with service(*worker, env={**os.environ, "TMPDIR": str(tmp_path)}) as workers:  # a killed one leaves its folder
        assert main([*run, "--engine", "serial", "--out", str(tmp_path / "serial")]) == 0
        assert hear(workers, "joined") == f"2 workers have joined {folder}/scheduler.json.\n"
        for worker in worker_processes(workers):
            connections = psutil.Process(worker).net_connections("inet")
            assert {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
            assert psutil.Process(worker).environ()["OMP_NUM_THREADS"] == "1"
        done = airprune(*run, "--scheduler", address, "--tls", folder / "ours", "--out", tmp_path / "dask")
        assert done.returncode == 0, done.stderr
        relatives = family(workers)
        assert len(relatives) == 3  # the workers, and a helper of multiprocessing
        kill(workers)
        wait_until_gone(relatives)
    for name in ("final.safetensors", "records.jsonl"):
        assert (tmp_path / "dask" / name).read_bytes() == (tmp_path / "serial" / name).read_bytes()


def test_workers_are_replaced_when_killed_and_leave_with_the_scheduler_and_nothing_stays(tmp_path):
    file = tmp_path / "scheduler.json"
    with (
        service("scheduler", "--port", 0, "--scheduler-file", file) as scheduler,
        service("worker", file, "--workers", 1, "--death-timeout", 1) as workers,
    ):
        hear(workers, "joined")
        (first,) = worker_processes(workers)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: worker_processes(workers) not in ([], [first]), "a new worker")
        relatives = family(workers)
        scheduler.terminate()
        assert scheduler.wait(PATIENCE_S) == 0 and scheduler.stderr.read().endswith("stopped.\n")
        assert not file.exists()
        assert workers.wait(PATIENCE_S) == 0
        assert workers.stderr.read().endswith("There has been no scheduler for 1 s; the workers leave.\nstopped.\n")
        wait_until_gone(relatives)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_workers_even_while_they_start(address, folder, number):
    with service("worker", address, "--tls", folder / "ours", "--workers", 1) as workers:
        wait_for(lambda: worker_processes(workers) != [], "a worker process")
        relatives = family(workers)
        os.killpg(workers.pid, number)  # as a terminal and SLURM do: to the workers as well
        assert workers.wait(PATIENCE_S) == 0 and workers.stderr.read() == "stopped.\n"
        wait_until_gone(relatives)
