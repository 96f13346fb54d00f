"""What a repository has beside its code: citation, policies, workflows, an image."""

import re
import tomllib
from pathlib import Path

import yaml

import airprune as ap
from airprune.cli.deploy import deploy

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    versions = {ap.__version__, PROJECT["version"], citation["version"], citation["preferred-citation"]["version"]}
    assert len(versions) == 1
    assert f"## {ap.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_citation_names_software_and_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = citation["references"]
    assert (
        citation["type"] == "software"
        and paper["title"] == "Adaptive Federated Pruning in Hierarchical Wireless Networks"
    )
    assert [author["family-names"] for author in paper["authors"]] == ["Liu", "Wang", "Deng", "Nallanathan"]


def test_workflows_run_scripts_that_exist_on_every_python_that_is_promised():
    flows = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
    assert set(flows) == {"tests", "docs", "wheels"}
    steps = [step for flow in flows.values() for job in flow["jobs"].values() for step in job["steps"]]
    commands = [step["run"].split()[0] for step in steps if "run" in step]
    assert commands and all((ROOT / command).stat().st_mode & 0o111 for command in commands)
    promised = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert flows["tests"]["jobs"]["tests"]["strategy"]["matrix"]["python"] == promised


def test_the_image_starts_roles_that_the_command_line_has():
    text = (ROOT / "Dockerfile").read_text()
    shown = set(re.findall(r"airprune (cloud|edge|device) /kit", text))
    known = {command.name or command.callback.__name__ for command in deploy.registered_commands}
    assert shown == {"cloud", "edge", "device"} <= known and "-c constraints.txt" in text


def test_no_file_names_a_folder_of_one_machine():
    skipped = {"scripts/common"}  # its fallback for a folder of local wheels
    folders = ("/opt/wheels", "/root/", "/home/")
    found = [
        f"{path.relative_to(ROOT)}: {folder}"
        for pattern in ("docs/**/*.md", "benchmarks/**/*.py", "scripts/*", "*.md", "*.txt")
        for path in ROOT.glob(pattern)
        if path.is_file() and str(path.relative_to(ROOT)) not in skipped
        for folder in folders
        if folder in path.read_text(encoding="utf-8")
    ]
    assert not found, "\n".join(found)
