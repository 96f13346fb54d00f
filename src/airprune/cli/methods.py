"""`airprune methods`: recipes and components, one of them in full, or a check that one keeps the rules."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import AsJson
from airprune.errors import UnknownName

CHECK_FAILED = 1


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A method or a component to tell about.")] = None,
    components: Annotated[
        bool, typer.Option("--components", help="List the components that methods are made of.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Try whether a method or component, e.g. your own, keeps the rules."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, tell all about one, or check one.

    Example: `airprune methods frozen-pruning`, `airprune methods --check mine --import my_methods.py`
    """
    if check is not None:
        _check(check, as_json)
    elif name is not None:
        _tell(name, as_json)
    elif components:
        _list_components(as_json)
    else:
        _list_methods(as_json)


def _list_methods(as_json: bool) -> None:
    from airprune.methods import METHODS

    if as_json:
        print_json([_recipe_facts(METHODS[name]) for name in METHODS])
        return
    table = _table("method", "origin", "what it does")
    for recipe in METHODS.values():
        table.add_row(recipe.name, recipe.label, recipe.summary)
    stdout_console().print(table)


def _list_components(as_json: bool) -> None:
    found = [(kind, component) for kind, registry in _kinds().items() for component in registry.values()]
    if as_json:
        print_json([_component_facts(kind, component) for kind, component in found])
        return
    table = _table("kind", "component", "what it does")
    for kind, component in found:
        table.add_row(kind, component.name, component.summary)
    stdout_console().print(table)


def _tell(name: str, as_json: bool) -> None:
    from airprune.methods import METHODS

    if name in METHODS:
        facts = [_recipe_facts(METHODS[name])]
    else:
        facts = [_component_facts(kind, registry[name]) for kind, registry in _kinds().items() if name in registry]
    if not facts:
        raise UnknownName("method or component", name[:60], [*METHODS, *_component_names()])
    if as_json:
        print_json(facts[0] if len(facts) == 1 else facts)
        return
    for entry in facts:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for key, value in entry.items():
            if value not in ("", [], {}, None):
                table.add_row(key.replace("_", " "), _words(value))
        stdout_console().print(table)


def _check(name: str, as_json: bool) -> None:
    from airprune.conformance import check

    findings = check(name)
    if as_json:
        print_json([finding.as_dict() for finding in findings])
    else:
        table = _table("rule", "kept", "what was seen")
        for finding in findings:
            table.add_row(finding.rule, "yes" if finding.kept else "NO", finding.seen)
        stdout_console().print(table)
    broken = [finding for finding in findings if not finding.kept]
    if broken:
        say(f"{name} breaks {len(broken)} of {len(findings)} rules.")
        raise typer.Exit(CHECK_FAILED)
    say(f"{name} keeps all {len(findings)} rules that apply to it.")


def _recipe_facts(recipe: Any) -> dict[str, Any]:
    slots = recipe.slots(_paper_shape())
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "origin": recipe.label,
        "source": recipe.source,
        "settings": dict(recipe.settings),
        "components": recipe.components,
        "state": [_slot_facts(slot) for slot in slots],
        "claim": recipe.claim,
    }


def _component_facts(kind: str, component: Any) -> dict[str, Any]:
    fields = component.Options.model_fields
    options = component.Options() if all(not field.is_required() for field in fields.values()) else None
    return {
        "kind": kind,
        "name": component.name,
        "summary": component.summary,
        "source": component.source,
        "options": {
            name: {"default": None if options is None else _plain(getattr(options, name)), "meaning": field.description}
            for name, field in fields.items()
        },
        "state": [] if options is None else [_slot_facts(slot) for slot in component.slots(options, _paper_shape())],
    }


def _slot_facts(slot: Any) -> dict[str, Any]:
    return {"name": slot.name, "owner": slot.owner.value, "bytes": slot.num_bytes(_paper_shape())}


def _paper_shape() -> Any:
    from airprune.components import paper_shape

    return paper_shape()


def _kinds() -> dict[str, Any]:
    from airprune.registration import registries

    left_out = ("methods", "importance", "kernels")
    return {registry.kind: registry for registry in registries().values() if registry.kind not in left_out}


def _component_names() -> list[str]:
    return [name for registry in _kinds().values() for name in registry]


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads[:-1]:
        table.add_column(head, no_wrap=True)
    table.add_column(heads[-1])
    return table


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key} = {_words(entry)}" for key, entry in value.items())
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "\n".join(f"{slot['name']}: {slot['bytes']:,} bytes per {slot['owner']}" for slot in value)
    return str(value)
