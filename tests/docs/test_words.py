"""Text for users has the words of the field: none of `WORDS` in it, wherever a user reads."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from airprune.cli.app import COMMANDS, NESTED, app_for
from airprune.methods import METHODS
from airprune.methods.registration import registries
from airprune.scenario import Scenario, presets
from airprune.scenario.presets import preset_text

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "airprune"
# A word, and what to write in its place.
WORDS = {
    r"(alike|unlike) data|(less|more) alike": "IID, non-IID",
    r"(is|are|was|were|be) asked(?! for\b)": "is selected",
    r"by lot": "at random",
    r"in vain": "without success",
    r"restless": "unstable",
    r"mend(s|ed|ing)?": "fix",
    r"spoil(s|t|ed|ing)?": "corrupt",
    r"(no|some|every)body": "no device, a device, every device",
    r"whoever": "any device that",
    r"lest": "otherwise",
    r"told": "configured, notified, printed, sent",
    r"right on average": "unbiased",
    r"honest clock": "device clock",
    r"entrants?": "method",
}
PATTERNS = {
    re.compile(rf"(?<![\w-])(?:{words})(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE): better
    for words, better in WORDS.items()
}
# The first words of docstrings that lack a verb.
NO_SENTENCE = re.compile(r"(What|Who|Whom|Whose|Of|How|Whether|Which|Where|When|Why)\b")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)


def old_words(text: str, place: str, *, first_line: int = 1) -> list[str]:
    """Returns "place:line word: what to write" for every old word of a text."""
    found = [(match, better) for pattern, better in PATTERNS.items() for match in pattern.finditer(text)]
    return [
        f"{place}:{first_line + text.count(chr(10), 0, match.start())} {' '.join(match[0].split())}: {better}"
        for match, better in sorted(found, key=lambda pair: pair[0].start())
    ]


def none_of(findings: Iterable[str]) -> None:
    found = list(findings)
    if found:
        pytest.fail("\n".join([f"{len(found)} places", *found]), pytrace=False)


def blank(found: re.Match[str]) -> str:
    """Returns as many lines as it takes out, so that the numbers of the others stay."""
    return "\n" * found[0].count("\n")


def prose(markdown: str) -> str:
    """Returns a page without its code blocks and `code`."""
    return re.sub(r"(`+)[^`]+\1", blank, FENCE.sub(blank, markdown))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_words_are_found_whole_in_any_case_and_over_a_line_break():
    text = "Nobody\nis told, by\nlot. A celestial amendment, manifold; a told-off `nobody-else`; devices are  asked."
    found = [line.split(":")[1] for line in old_words(text, "here")]
    assert found == ["1 Nobody", "2 told", "2 by lot", "3 are asked"]
    assert old_words("unlike\ndata", "there", first_line=7) == ["there:7 unlike data: IID, non-IID"]
    assert prose("a `nobody` b\n```text\nnobody\n```\nc") == "a  b\n\n\n\nc"


def test_of_a_script_only_strings_are_read(tmp_path):
    script = tmp_path / "page.js"
    script.write_text("told(1); // nobody\nsay('nobody', \"it's\", `a\n${told} lest`); /* told\n */ x = 'told';")
    found = [line.split(":")[1] for line in old_words(shown(script), "page.js")]
    assert found == ["2 nobody", "3 lest", "4 told"]


def test_pages_of_the_documentation():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    none_of(line for page in sorted(pages) for line in old_words(prose(page.read_text()), relative(page)))


def test_notebooks():
    def texts() -> Iterator[str]:
        for path in sorted(ROOT.glob("notebooks/*.ipynb")):
            for number, cell in enumerate(json.loads(path.read_text())["cells"]):
                if cell["cell_type"] == "markdown":
                    yield from old_words(prose("".join(cell["source"])), f"{relative(path)}, cell {number}")

    none_of(texts())


def helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yields every text of a command's help, and those of its own commands."""
    yield path, " ".join(filter(None, (command.help, command.epilog, command.short_help)))
    for parameter in command.params:
        yield (
            f"{path} {parameter.opts[0] if parameter.opts else parameter.name}",
            getattr(parameter, "help", None) or "",
        )
    for name, part in getattr(command, "commands", {}).items():
        yield from helps(part, f"{path} {name}")


def test_help_of_every_command():
    app = typer.main.get_command(app_for(*COMMANDS))
    texts = dict(helps(app, "airprune"))
    assert len(texts) > 100 and set(COMMANDS) <= set(app.commands)
    for words in NESTED:
        texts |= dict(helps(typer.main.get_command(app_for(*words)).commands[words[0]], " ".join(words)))
    texts |= {f"the list of commands, {name}": words for name, words in COMMANDS.items()}
    none_of(line for place, text in texts.items() for line in old_words(text, place))


def described(schema: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the place and the text of every title and description of a schema."""
    if isinstance(schema, list):
        schema = dict(enumerate(schema))
    if isinstance(schema, dict):
        for key, part in schema.items():
            if key in ("title", "description") and isinstance(part, str):
                yield path.removeprefix("$defs.").replace("properties.", ""), part
            else:
                yield from described(part, f"{path}.{key}".lstrip("."))


def test_components_and_their_options():
    def texts() -> Iterator[str]:
        for registry in registries().values():
            for name in registry:
                for field in ("summary", "source", "label", "claim", "description"):
                    text = getattr(registry[name], field, None)
                    if isinstance(text, str):
                        yield from old_words(text, f"{registry.kind} {name}, {field}")

    assert METHODS in list(registries().values())
    none_of(texts())


def test_settings_of_a_scenario():
    found = list(described(Scenario.model_json_schema()))
    assert len(found) > 100
    none_of(line for place, text in found for line in old_words(text, f"setting {place}"))


def test_presets():
    none_of(line for name in presets() for line in old_words(preset_text(name), f"preset {name}"))


# A comment, which is for authors, or a string.
JAVASCRIPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)""", re.DOTALL
)


def shown(path: Path) -> str:
    """Returns what a file brings to the screen: a page without its comments, the strings of a script."""
    text = path.read_text()
    if path.suffix == ".html":
        return re.sub(r"<!--.*?-->|\{#.*?#\}", blank, text, flags=re.DOTALL)
    lines, at = "", 0
    for found in JAVASCRIPT.finditer(text):
        words = re.sub(r"\$\{[^{}]*\}", blank, found[1]) if found[1] else blank(found)
        lines += "\n" * text.count("\n", at, found.start()) + " " + words
        at = found.end()
    return lines


@pytest.mark.parametrize("folder", ["web/static", "results/report/templates"])
def test_pages_of_the_browser(folder):
    files = [path for path in sorted((PACKAGE / folder).iterdir()) if path.suffix in (".html", ".js")]
    assert files
    none_of(line for path in files for line in old_words(shown(path), relative(path)))


SOURCES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py")) if "_pb2" not in path.name}


def sentences(raised: ast.AST) -> Iterator[ast.Constant]:
    """Yields the string literals among the arguments of what is raised; those of f-strings too."""
    for node in ast.walk(raised):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


def test_sentences_of_errors():
    def texts() -> Iterator[str]:
        for path, tree in SOURCES.items():
            literals = {
                node
                for raised in ast.walk(tree)
                if isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call)
                for node in sentences(raised.exc)
            }
            for node in sorted(literals, key=lambda node: (node.lineno, node.col_offset)):
                yield from old_words(node.value, relative(path), first_line=node.lineno)

    none_of(texts())


def test_docstrings_begin_with_a_sentence_that_has_a_verb():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{relative(path)}:{getattr(node, 'lineno', 1)} {docstring.splitlines()[0]}"
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (docstring := ast.get_docstring(node)) and NO_SENTENCE.match(docstring)
    ]
    none_of(found)
