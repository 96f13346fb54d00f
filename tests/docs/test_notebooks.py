"""The notebooks run from top to bottom in an empty folder, and are stored with their outputs."""

from pathlib import Path

import nbformat
import pytest
from tools import notebooks

FOLDER = Path(__file__).parents[2] / "notebooks"
# What a reader must see, by notebook.
SHOWN = {
    "adapters": ("adaptive-ranks: perplexity", "of the change", "image/png"),
    "plan-a-fleet": ("cam-5:", "round 2: accuracy", "image/png"),
    "reproduce-and-extend": ("time_to_target_s", "\\toprule", "image/png"),
    "your-own": ("gentle", "proportional", "image/png"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_is_stored_with_the_outputs_of_one_run_from_top_to_bottom(name):
    cells = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run: tools/notebooks.py"
    stored = str([cell.outputs for cell in code])
    assert all(words in stored or words.replace("\\", "\\\\") in stored for words in SHOWN[name])


def test_every_notebook_is_run():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SHOWN)


# Of half a minute and more.
LONG = ("adapters", "reproduce-and-extend")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SHOWN]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the kernel's own packages
def test_a_notebook_runs_and_shows_what_it_promises(name, tmp_path):
    notebook = notebooks.execute(FOLDER / f"{name}.ipynb", tmp_path, timeout_s=120)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not any(output.output_type == "stream" and output.name == "stderr" for output in outputs)
    for words in SHOWN[name]:
        assert any(words in str(output) for output in outputs), words
