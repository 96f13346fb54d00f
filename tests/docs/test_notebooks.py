"""The notebooks run from top to bottom in an empty folder, and are stored without what they print."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
# What a reader must see, by notebook.
SHOWN = {
    "plan-a-fleet": ("cam-5:", "round 2: accuracy", "image/png"),
    "reproduce-and-extend": ("time_to_target_s", "\\toprule", "image/png"),
    "your-own": ("gentle", "proportional", "image/png"),
}


def test_every_notebook_is_run():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SHOWN)


# Of half a minute.
LONG = ("reproduce-and-extend",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SHOWN]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the kernel's own packages
def test_a_notebook_runs_and_shows_what_it_promises(name, tmp_path):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "stream" and output.name == "stderr" for output in outputs)
    for words in SHOWN[name]:
        assert any(words in str(output) for output in outputs), words
