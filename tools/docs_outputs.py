"""Brings the printed outputs of the documentation's bash blocks up to date.

.venv/bin/python tools/docs_outputs.py quickstart.md     runs the page's commands and writes what they print into it

Blocks that match already stay as they are, with their `…`. Read the difference before you commit it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support import docs_blocks  # noqa: E402


def main(names: list[str]) -> None:
    for name in names:
        page = ROOT / "docs" / name
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(docs_blocks.refreshed(page.read_text(), Path(folder), timeout_s=600))


if __name__ == "__main__":
    main(sys.argv[1:])
