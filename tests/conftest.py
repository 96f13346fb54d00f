import base64
import importlib
import signal
import sys
from collections import Counter

import pytest
import torch
from hypothesis import settings

from airprune import registration
from airprune.cli import main
from support.namespaces import can_make_namespaces

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
                counts = {name: count for name, count in report.user_properties if name.startswith(TALLY)}
                sums.update({name.removeprefix(TALLY): count for name, count in counts.items()})
                failed += bool(counts) and report.failed
    if sums:
        words = ", ".join(f"{count:,} {what}" for what, count in sorted(sums.items()))
        terminalreporter.write_line(f"Tried: {words}. Tests of these that failed: {failed}.")


@pytest.fixture
def one_thread():
    """Torch's threads cost more than they save on batches this small."""
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


# One white pixel.
BLANK_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)


@pytest.fixture
def blank_pictures(monkeypatch):
    """Pictures are saved blank: drawing them is most of a small run, and nothing to tests of words and numbers."""

    def save(figure, *paths):
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(BLANK_PNG)

    names = ("airprune.figures", "airprune.report.drawing", "airprune.paper.reproduction")
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
