import base64
import importlib
import os
import signal
import subprocess
import sys
import types
from collections import Counter

import pytest
from hypothesis import settings

from airprune.cli import main
from airprune.methods import registration
from support.namespaces import can_make_namespaces
from support.warm import Forked

# Before torch is imported, here and in whatever is started: its threads sleep between batches. By default they spin,
# which was half of the processor time of these tests, whose batches are tiny and whose processes outnumber the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Tables fit COLUMNS where it is set. The workers of the test runner set it, and readline does so behind os.environ.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

# A job in the background of a shell ignores Ctrl-C, and so does whatever it starts; the commands under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are drawn from a fixed seed, so a red run can be repeated; machines are shared, so no deadline.
settings.register_profile("full", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("full"), max_examples=40)
settings.load_profile("quick")


def pytest_runtest_setup(item):
    if item.get_closest_marker("netns") and not can_make_namespaces():
        pytest.skip("needs root and network namespaces")


TALLY = "tally: "


@pytest.fixture
def tally(record_property):
    """`tally("kills", 3)`: what a test has done to the program; the end of the session prints the sums."""
    return lambda what, count=1: record_property(TALLY + what, count)


def pytest_terminal_summary(terminalreporter):
    sums, failed = Counter(), 0
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                counts = [(name, count) for name, count in report.user_properties if name.startswith(TALLY)]
                for name, count in counts:
                    sums[name.removeprefix(TALLY)] += count
                failed += bool(counts) and report.failed
    if sums:
        words = ", ".join(f"{count:,} {what}" for what, count in sorted(sums.items()))
        terminalreporter.write_line(f"Tried: {words}. Tests of these that failed: {failed}.")


@pytest.fixture
def one_thread():
    """Torch's threads cost more than they save on batches this small."""
    import torch  # here, since the process that hands the tests out does without

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def command(capsys):
    """One command within this process: (exit status, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def warm_workers(request, monkeypatch):
    """Worker processes of the engines start warm: the same processes, which need not import torch again.

    Not for tests that look for them in /proc, by their words or their parent, or that change how they start: these are
    marked `cold`.
    """
    if request.node.get_closest_marker("cold"):
        return
    started = types.SimpleNamespace(**{**vars(subprocess), "Popen": Forked})
    monkeypatch.setattr("airprune.engines.children.subprocess", started)


@pytest.fixture
def blank_png() -> bytes:
    """One white pixel."""
    return base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
    )


@pytest.fixture
def blank_pictures(monkeypatch, blank_png):
    """Pictures are saved blank: drawing them is most of a small run, and nothing to tests of words and numbers."""

    def save(figure, *paths):
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(blank_png)

    names = (
        "airprune.results.figures.curves",
        "airprune.results.report.page",
        "airprune.studies.paper.reproduction",
    )
    for module in [importlib.import_module(name) for name in names]:  # all before the first is changed
        monkeypatch.setattr(module, "save_figure", save)
    return save


@pytest.fixture
def unregistered():
    """Leaves the registries as a fresh process has them."""
    yield
    for registry in registration.registries().values():
        for component in registry.added:
            registry.remove(component.name)
    for module in registration._FILES:
        sys.modules.pop(module, None)
    registration._FILES.clear()
    registration._ORIGINS.clear()
