"""The modules of the package: no cycles, no torch where numbers are planned or sums are taken."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import airprune
from support.each import each

ROOT = Path(airprune.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}
# Pure functions of numbers: no torch, no files, no printing, no global randomness.
NUMERIC = (
    "components", "planning", "theory", "wireless.channel", "wireless.latency", "wireless.network",
    "wireless.path_loss",
    "wireless.device_speed.boards", "wireless.device_speed.work", "methods.masking", "methods.objectives",
    "methods.compression", "methods.aggregation", "methods.selection", "methods.association", "methods.topology",
    "rounds.edge", "rounds.planning_context", "rounds.relayed", "rounds.cloud", "rounds.messages", "rounds.method",
    "rounds.compute_times", "rounds.timing", "units",
)  # fmt: skip


def top_level_imports(module: str) -> set[str]:
    """Modules of the package that importing `module` imports; those inside functions and for types are left out."""
    found: set[str] = set()
    for node in ast.parse(MODULES[module].read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name in MODULES and name != module}


def test_no_module_imports_itself_through_others():
    graph = {module: top_level_imports(module) for module in MODULES}
    for module in graph:  # a package's own listing may import its members, and they its base
        parent = module.rpartition(".")[0]
        graph[module] -= {parent}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


# Every room, the lowest first: a room imports only rooms that come before it here. Modules at the root are below all.
ROOMS = (
    "settings", "components", "tables", "wireless", "data", "models", "theory", "planning", "methods", "scenario",
    "engines", "rounds", "simulation", "runs", "results", "sinks", "studies", "flower", "deployment", "web", "cli",
)  # fmt: skip
AT_THE_ROOT = {
    "__init__", "__main__", "authority", "checks", "errors", "extras", "files", "json_types", "randomness", "text",
    "units",
}  # fmt: skip


def room_of(module: str) -> str:
    return module.split(".")[1]


def test_the_rooms_are_those_of_the_list_and_nothing_else_lies_at_the_root():
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(ROOMS)
    assert {path.stem for path in ROOT.glob("*.py")} == AT_THE_ROOT


def test_rooms_import_only_rooms_below_them():
    upward = [
        f"{module} imports {imported}"
        for module in MODULES
        if module.count(".") and room_of(module) in ROOMS
        for imported in top_level_imports(module)
        if imported.count(".") and room_of(imported) in ROOMS
        if ROOMS.index(room_of(imported)) > ROOMS.index(room_of(module))
    ]
    assert not upward


def test_modules_at_the_root_import_no_room():
    upward = [
        f"{module} imports {imported}"
        for module in MODULES
        if module.count(".") == 1 and room_of(module) in AT_THE_ROOT - {"__init__", "__main__"}
        for imported in top_level_imports(module)
        if imported.count(".") and room_of(imported) in ROOMS
    ]
    assert not upward


def is_numeric(module: str) -> bool:
    name = module.removeprefix("airprune.")
    return any(name == part or name.startswith(f"{part}.") for part in NUMERIC)


@each("module", sorted(filter(is_numeric, MODULES)))
def test_numeric_modules_have_no_torch_no_printing_and_no_global_randomness(module):
    tree = ast.parse(MODULES[module].read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "torch" for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] != "torch"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "open")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "random":
            assert node.attr in ("Generator", "SeedSequence", "Philox", "default_rng")


def test_numpy_compares_no_rows_since_it_turns_ctrl_c_into_a_type_error_there():
    calls = [
        (module, node.lineno)
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unique"
        if any(keyword.arg == "axis" for keyword in node.keywords)
    ]
    assert calls == []


def calls_of(name: str) -> set[str]:
    """Modules that call a function, or build a class, of this name."""
    return {
        module.removeprefix("airprune.")
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    }


def test_lines_of_records_are_decoded_by_the_one_reader_and_by_what_follows_a_growing_file():
    assert calls_of("record_in") == {"runs.record_reader", "web.runs.following"}


def test_every_figure_begins_in_the_home_of_figures():
    assert calls_of("Figure") == {"results.figures.curves"}
