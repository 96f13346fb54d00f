"""Runs the notebooks from top to bottom in empty folders and stores their outputs.

.venv/bin/python tools/notebooks.py                    all of them
.venv/bin/python tools/notebooks.py plan-a-fleet       some
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"


def execute(path: Path, folder: Path, *, timeout_s: int = 600) -> nbformat.NotebookNode:
    """Returns the notebook with the outputs of a run in the folder."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=timeout_s, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # wall-clock times would change with every run
    return notebook


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(execute(path, Path(folder)), path)


if __name__ == "__main__":
    main(sys.argv[1:])
