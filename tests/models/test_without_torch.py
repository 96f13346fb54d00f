"""An installation without the extra `train`: planning, pages and reports work, the rest says what to install."""

import contextlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import airprune as ap
from airprune import extras
from support import without_torch
from support.processes import PATIENCE_S
from support.tiny import blobs, tiny_scenario

ROOT = Path(__file__).resolve().parents[2]
FLEET = "device,edge,snr_db\ncam-1,north,43.0\ncam-2,north,42.0\ncam-3,south,38.9\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("without-torch")
    (folder / "fleet.csv").write_text(FLEET)
    list(ap.run(tiny_scenario(rounds__global_rounds=1), dataset=blobs(), out=folder / "run"))
    return folder


@pytest.fixture(scope="module")
def answers(folder) -> dict:
    """What commands and pages say in a process that cannot import the extra's packages."""
    program = [sys.executable, without_torch.__file__]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", without_torch.COMMANDS)
def test_planning_and_reports_need_no_torch(answers, words):
    status, out, err = answers[words]
    assert status == 0 and "Traceback" not in err
    assert out or "Report" in err


@pytest.mark.parametrize("path", without_torch.PAGES)
def test_pages_need_no_torch(answers, path):
    assert answers[path] == 200


@pytest.mark.parametrize("words", without_torch.REFUSED)
def test_what_trains_says_in_one_sentence_which_extra_to_install(answers, words):
    status, out, err = answers[words]
    name = words.split()[0]
    assert (status, out) == (2, "")
    assert err == f"error: airprune {name} needs the extra `train`: {answers['way in']}\n"


def test_training_from_python_names_the_extra(answers):
    assert answers["ap.run"] == f"MissingExtra: airprune.run needs the extra `train`: {answers['way in']}"


def test_what_is_refused_leaves_nothing_behind(answers, folder):
    assert sorted(path.name for path in folder.iterdir()) == ["fleet.csv", "run"]


def test_in_a_checkout_the_hint_installs_the_checkout(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin")
    monkeypatch.chdir(ROOT)
    assert extras.install_command("train") == "pip install -c constraints.txt -e '.[train]'"
    monkeypatch.chdir(tmp_path)
    assert extras.install_command("deploy") == f"pip install -c {ROOT}/constraints.txt -e '{ROOT}[deploy]'"
    monkeypatch.setenv("PATH", "/nowhere")
    assert extras.install_command().startswith(f"{sys.executable} -m pip install ")


@pytest.mark.parametrize("kind", ["a folder", "a wheel", "an index"])
def test_elsewhere_the_hint_installs_from_where_airprune_came(kind, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "lib/site-packages/airprune/extras.py"))
    source = tmp_path / {"a folder": "tree", "a wheel": "airprune-0.1.0.whl"}.get(kind, "gone")
    if kind == "a folder":
        source.mkdir()
        (source / "pyproject.toml").touch()
    elif kind == "a wheel":
        source.touch()

    class Installed:
        def read_text(self, name: str) -> str:
            assert name == "direct_url.json"
            return json.dumps({"url": source.as_uri()})

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    wanted = "airprune" if kind == "an index" else source
    assert extras.install_command("train") == f"pip install '{wanted}[train]'"


def test_the_extras_are_those_of_the_project_file():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.EXTRAS) <= set(project["optional-dependencies"])
    base = " ".join(project["dependencies"])
    assert not any(name in base for name in extras.EXTRAS["train"])
    assert all(name in base for name in extras.PAGES)


def test_every_package_of_every_extra_is_pinned():
    """Those named in the project file, and what they need as far as it is installed here."""
    import tomllib

    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()

    pinned = {plain(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    chosen = [names for extra, names in optional.items() if extra not in extras.UNPINNED]
    asked = [*project["dependencies"], *(name for names in chosen for name in names)]
    wanted = {plain(name) for name in asked} - {"airprune"}
    for name in tuple(wanted):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            needs = importlib.metadata.requires(name) or ()
            wanted |= {plain(need) for need in needs if ";" not in need}
    assert wanted <= pinned, wanted - pinned
