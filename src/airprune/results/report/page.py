"""The report around the sections: title, contents, looks, and the place of its figures."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

import airprune
from airprune import files
from airprune.results.figures.curves import PaperColumn, figure_files, save_figure
from airprune.results.report.markup import TEMPLATES, Markup, captioned, image, link
from airprune.results.tidy import Rows, write_rows
from airprune.tables import write_text_atomic


@dataclass(frozen=True)
class Section:
    """A heading and its content; omitted without content."""

    title: str
    content: Sequence[Markup]

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, kw_only=True)
class Page:
    kind: str
    name: str
    lead: Markup
    sections: Sequence[Section]
    times: str = "All times are simulated."


@dataclass(frozen=True)
class Place:
    """The place where a report and its figures are written.

    Attributes:
      folder: the subject of the report.
      formats: of figures beside PNG, which the report needs.
    """

    out: Path
    folder: Path
    paper: PaperColumn | None = None
    formats: Sequence[str] = ()

    @property
    def figures(self) -> Path:
        return self.out.parent / ("figures" if self.out.stem == "report" else f"{self.out.stem}-figures")

    def link_to(self, path: Path) -> Markup:
        """Returns a link that works as long as report and file stay where they are."""
        return link(path.name, os.path.relpath(path.resolve(), self.out.parent.resolve()))

    def add_figure(self, figure: Figure, name: str, *, alt: str, caption: str, table: str = "") -> Markup:
        """Saves a figure and returns it as part of the report; `table` is the CSV it shows.

        Files of an earlier report in other formats are drawn again, so that all files show the same.
        """
        files.make_folder(self.figures)
        png, *others = figure_files(self.figures / name)
        others = [path for path in others if path.suffix[1:] in self.formats or os.path.lexists(path)]
        save_figure(figure, png, *others)
        shown = [png, *others, *([self.figures / table] if table else [])]
        return image(png, alt=alt, caption=captioned(caption, [self.link_to(path) for path in shown]))

    def add_table(self, rows: Rows, name: str) -> None:
        if rows:
            files.make_folder(self.figures)
            write_rows(self.figures / name, rows)

    def add_text(self, text: str, name: str) -> Markup:
        """Writes a text beside the figures; returns a link to it."""
        files.make_folder(self.figures)
        write_text_atomic(self.figures / name, text, follow_link=False)
        return self.link_to(self.figures / name)


def page_text(page: Page) -> str:
    sections = [section for section in page.sections if section.content]
    return TEMPLATES.get_template("page.html").render(page=page, sections=sections, version=airprune.__version__) + "\n"
