"""`airprune methods`: methods by family and their components, one of them in full, or a check against the rules."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, Any

import typer
from rich.markup import escape

from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import AsJson
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UnknownName
from airprune.settings.toml_text import literal

CHECK_FAILED = 1


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Method or component to show in full.")] = None,
    components: Annotated[
        bool, typer.Option("--components", help="List the components that methods are made of.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Check in small runs that a method or component, e.g. your own, keeps the rules."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods by family, show one in full, or check one.

    Example: `airprune methods frozen-pruning`, `airprune methods --check mine --import my_methods.py`
    """
    if check is not None:
        _check(check, as_json)
    elif name is not None:
        _show(name, as_json)
    elif components:
        _list_components(as_json)
    else:
        _list_methods(as_json)


def _list_methods(as_json: bool) -> None:
    from airprune.methods import METHODS

    if as_json:
        print_json([_recipe_facts(recipe) for recipe in METHODS.values()])
        return
    width = max(map(len, METHODS))
    room = stdout_console().width - width - 4
    for title, recipes in _families().items():
        stdout_console().print(escape(title), style="bold")
        table = plain_table("", "", show_header=False)
        for recipe in recipes:
            table.add_row(f"  {recipe.name:<{width}}", _brief(recipe.summary, room))
        print_table(table)
        stdout_console().print()
    say(f"{len(METHODS)} methods. `airprune methods NAME` shows one in full; --components lists the components.")


def _brief(summary: str, room: int) -> str:
    """Returns a summary that fits on a line: whole, or up to the last comma, colon or semicolon, or word, that fits."""
    if len(summary) <= room:
        return summary
    clause = summary[: max(0, *(summary.rfind(mark, 0, room - 1) for mark in ",:;"))]
    return f"{clause} …" if len(clause) > room / 2 else textwrap.shorten(summary, room, placeholder=" …")


def _families() -> dict[str, list[Any]]:
    """Returns the methods by the title of their family; those registered by the user come last."""
    from airprune.methods import METHODS
    from airprune.methods.recipe import family

    names = sorted(path.name for path in files("airprune.methods.recipes").iterdir())
    titles = {
        name: family_.title.partition(". ")[0]
        for family_ in (family(name.removesuffix(".toml")) for name in names if name.endswith(".toml"))
        for name in family_.recipes
    }
    found: dict[str, list[Any]] = {}
    for recipe in METHODS.values():
        title = titles.get(recipe.name, "Registered by you")
        found.setdefault(title, []).append(recipe)
    return found


def _list_components(as_json: bool) -> None:
    found = [(kind, component) for kind, registry in _kinds().items() for component in registry.values()]
    if as_json:
        print_json([_component_facts(kind, component) for kind, component in found])
        return
    table, last = plain_table("kind", "component", "what it does"), ""
    for kind, component in found:
        table.add_row("" if kind == last else kind, component.name, component.summary)
        last = kind
    print_table(table, keys=2)


def _show(name: str, as_json: bool) -> None:
    """Prints a method or a component in full; where both have the name, both."""
    from airprune.methods import METHODS

    facts = [_recipe_facts(METHODS[name])] if name in METHODS else []
    facts += [_component_facts(kind, registry[name]) for kind, registry in _kinds().items() if name in registry]
    if not facts:
        components = [name for registry in _kinds().values() for name in registry]
        near = difflib.get_close_matches(name[:60], components, n=3)
        known = dict.fromkeys((*METHODS, *near))
        raise UnknownName("method or component", name[:60], known, more="those of --components and of --import FILE")
    if as_json:
        print_json(facts[0] if len(facts) == 1 else facts)
        return
    for number, entry in enumerate(facts):
        table = plain_table("", "", show_header=False)
        for key, value in entry.items():
            if value or key == "state":
                table.add_row(f"[bold]{key.replace('_', ' ')}[/bold]", escape(_TEXTS.get(key, str)(value)))
        if number:
            stdout_console().print()
        print_table(table)


def _check(name: str, as_json: bool) -> None:
    from airprune.studies.conformance import check

    say(f"Checking {name} in small runs, which takes a minute …")
    findings = check(name)
    if as_json:
        print_json([finding.as_dict() for finding in findings])
    else:
        table = plain_table("rule", "kept", "what was seen")
        for finding in findings:
            table.add_row(finding.rule, "yes" if finding.kept else "NO", escape(finding.seen))
        print_table(table)
    broken = [finding for finding in findings if not finding.kept]
    if broken:
        say(f"{name} breaks {len(broken)} of {len(findings)} rules.")
        raise typer.Exit(CHECK_FAILED)
    say(f"{name} keeps all {len(findings)} rules that apply to it.")


def _recipe_facts(recipe: Any) -> dict[str, Any]:
    return {
        "kind": "method",
        "name": recipe.name,
        "summary": recipe.summary,
        "origin": recipe.label,
        "departures": list(recipe.departures),
        "other_work": recipe.other_work,
        "source": recipe.source,
        "claim": recipe.claim,
        "registered_by": _registered_by("methods", recipe.name),
        "settings": dict(recipe.settings),
        "components": recipe.components,
        "state": [_slot_facts(slot) for slot in recipe.slots(_paper_shape())],
        "extra_cost": recipe.extra_cost(_paper_shape()),
    }


def _component_facts(kind: str, component: Any) -> dict[str, Any]:
    """Returns what is known of a component; importances, losses and metrics have neither options nor state."""
    fields: dict[str, Any] = getattr(component, "model_fields", {})
    has_defaults = all(not field.is_required() for field in fields.values())
    slots = component().slots(_paper_shape()) if isinstance(component, type) and has_defaults else ()
    return {
        "kind": kind,
        "name": component.name,
        "summary": component.summary,
        "source": getattr(component, "source", ""),
        "registered_by": _registered_by(kind, component.name),
        "options": {
            name: {
                "default": None if field.is_required() else _plain(field.get_default(call_default_factory=True)),
                "meaning": field.description or "",
            }
            for name, field in fields.items()
        },
        "state": [_slot_facts(slot) for slot in slots],
    }


def _registered_by(kind: str, name: str) -> str:
    from airprune.methods.registration import origin_of

    return origin_of(kind, name)


def _slot_facts(slot: Any) -> dict[str, Any]:
    return {"name": slot.name, "owner": slot.owner.value, "bytes": slot.num_bytes(_paper_shape())}


def _paper_shape() -> Any:
    from airprune.components.component import paper_shape

    return paper_shape()


def _kinds() -> dict[str, Any]:
    from airprune.methods.registration import registries

    left_out = ("methods", "kernels")
    return {registry.kind: registry for registry in registries().values() if registry.kind not in left_out}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _settings_text(settings: dict[str, Any]) -> str:
    return "\n".join(f"{key} = {literal(_plain(value))}" for key, value in settings.items())


def _components_text(components: dict[str, str]) -> str:
    return "\n".join(f"{key} = {name}" for key, name in components.items())


def _options_text(options: dict[str, Any]) -> str:
    values = {name: f"{name} = {literal(option['default'])}" for name, option in options.items()}
    width = max(map(len, values.values()))
    return "\n".join(f"{value:<{width}}  {options[name]['meaning']}".rstrip() for name, value in values.items())


def _state_text(slots: list[dict[str, Any]]) -> str:
    lines = [f"{slot['name']}: {slot['bytes']:,} bytes per {slot['owner']}, for the paper's CNN" for slot in slots]
    return "\n".join(lines) or "none"


_TEXTS: dict[str, Callable[[Any], str]] = {
    "settings": _settings_text,
    "components": _components_text,
    "options": _options_text,
    "state": _state_text,
    "departures": "\n".join,
    "extra_cost": "\n".join,
}
