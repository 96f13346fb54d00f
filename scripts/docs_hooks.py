"""Hooks of the documentation site: equations as MathML, references from code, pages of the tree's root.

Browsers draw MathML themselves, so equations need no script and no fonts from other hosts. A comment
`<!-- generated: NAME -->` is where a page gets its reference while the site is built.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import airprune
from airprune.cli.app import COMMANDS, app_for
from airprune.methods.registration import registries

ROOT = Path(__file__).parents[1]
OF_THE_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md")
_BLOCK = re.compile(r"^```math\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"\$`([^`\n]+)`\$")
_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in OF_THE_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    text = markdown.replace("](../CONTRIBUTING.md", "](CONTRIBUTING.md").replace("](../CHANGELOG.md", "](CHANGELOG.md")
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    if page.file.src_uri in OF_THE_ROOT:
        text = text.replace("](docs/", "](")
    return with_mathml(_GENERATED.sub(lambda found: REFERENCES[found[1]](), text))


def with_mathml(text: str) -> str:
    """```math blocks and $`…`$, as GitHub reads them too, as MathML."""
    text = _BLOCK.sub(lambda found: f'<div class="equation" tabindex="0">{_mathml(found[1], "block")}</div>\n', text)
    # In a span: a line that began with <math> would be taken for a block of HTML.
    return _INLINE.sub(lambda found: f"<span>{_mathml(found[1], 'inline')}</span>", text)


def _mathml(latex: str, display: str) -> str:
    return latex2mathml.converter.convert(" ".join(latex.split()), display=display)


def python_page() -> str:
    """The public names, each from its own module's docstrings."""
    lines: list[str] = []
    for name in airprune.__all__:
        value = getattr(airprune, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            lines += [f"::: {value.__module__}.{value.__name__}", ""]
        elif name == "METHODS":
            lines += [f"## METHODS\n\nName → recipe, {len(value)} of them: [methods](related.md).", ""]
        elif name == "SCHEMES":
            lines += ["## SCHEMES\n\nName → scheme.\n", "| scheme | what it does |", "|---|---|"]
            lines += [f"| `{key}` | {_cell(scheme.summary)} |" for key, scheme in value.items()] + [""]
    return "\n".join(lines)


def components_page() -> str:
    """What each kind of component is, and its members."""
    lines: list[str] = []
    for kind, registry in registries().items():
        members = [(name, registry[name]) for name in registry]
        described = [(name, member) for name, member in members if getattr(member, "summary", "")]
        if kind.__name__ == "Recipe" or not described:
            continue
        lines += [f"## {kind.__name__}", "", _first(kind), "", "| name | what it does |", "|---|---|"]
        lines += [f"| `{name}` | {_cell(member.summary)} |" for name, member in described] + [""]
    return "\n".join(lines)


def _first(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def cli_page() -> str:
    """Every command with its arguments and options, from the command line's own definitions."""
    return "\n".join(_command(typer.main.get_command(app_for(*COMMANDS)), ["airprune"]))


def _command(command: Any, words: list[str]) -> list[str]:
    children = getattr(command, "commands", {})
    lines = [] if len(words) == 1 else [f"## {' '.join(words)}", "", inspect.cleandoc(command.help or ""), ""]
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if shown and not children:
        lines += [
            "| argument or option | what it is |",
            "|---|---|",
            *(_parameter(parameter) for parameter in shown),
            "",
        ]
    for name, child in children.items():
        lines += _command(child, [*words, name])
    return lines


def _parameter(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    name = ", ".join(parameter.opts) if is_option else (parameter.metavar or parameter.name.upper())
    return f"| `{_cell(name)}` | {_cell(getattr(parameter, 'help', None) or '')} |"


REFERENCES = {"cli": cli_page, "python": python_page, "components": components_page}
