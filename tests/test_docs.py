"""The documentation says what is true: its snippets run, its links exist, its equations have functions."""

import contextlib
import importlib
import io
import re
import textwrap
from pathlib import Path

import pytest

import airprune as ap
from airprune.schemes.base import Scheme

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SNIPPET = re.compile(r"<!-- tested -->\n *```python\n(.*?)\n *```(?:\n```text\n(.*?)\n```)?", re.DOTALL)


def snippets(page: str) -> list[tuple[str, str | None]]:
    return [(textwrap.dedent(code), output) for code, output in SNIPPET.findall((ROOT / page).read_text())]


def test_the_readme_example_prints_what_it_says():
    ((code, expected),) = snippets("README.md")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue().strip() == expected.strip()


def test_the_scheme_of_the_contributing_guide_plans():
    ((code, _),) = snippets("CONTRIBUTING.md")
    namespace: dict = {}
    exec(compile(code, "CONTRIBUTING.md", "exec"), namespace)
    scheme = namespace["SCHEME"]
    assert isinstance(scheme, Scheme)
    plan = scheme.plan(ap.PlanProblem(full_band_rate_bps=[3e8, 2e8], seconds_per_weight=1e-8))
    assert list(plan.status) == ["ok"] and plan.bandwidth_share.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_function_and_test_in_the_equations_map_exists():
    text = (ROOT / "docs/equations.md").read_text()
    functions = set(re.findall(r"`(airprune(?:\.\w+)+)`", text))
    assert len(functions) > 25
    for name in functions:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
    tests = set(re.findall(r"`(test_\w+)\.py::(\w+)`", text))
    assert len(tests) > 25
    for file, test in tests:
        assert f"def {test}(" in (ROOT / "tests" / f"{file}.py").read_text(), (file, test)


def test_every_equation_of_the_paper_is_in_the_map():
    text = (ROOT / "docs/equations.md").read_text()
    rows = re.findall(r"^\| \((\d+)\)(?:–\((\d+)\))?", text, re.MULTILINE)
    covered = {n for first, last in rows for n in range(int(first), int(last or first) + 1)}
    assert covered >= set(range(1, 68))


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().split()) < 700
