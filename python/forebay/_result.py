"""A result: a document with the files of its run directory."""

import base64
import json
from html import escape
from pathlib import Path
from typing import Any, Optional

from ._record import Rows, TableRecord


class ResultWarning(UserWarning):
    """A warning about a result; also in its `warnings`."""


class RunFiles:
    """The files of a run directory (docs/results.md), as far as there is one."""

    #: The run directory, or None.
    directory: Optional[Path]

    def file(self, name: str) -> Optional[Path]:
        """A file of the run directory, or None if there is none of this name."""
        path = self.directory / name if self.directory is not None else None
        return path if path is not None and path.is_file() else None

    @property
    def report(self) -> Optional[Path]:
        """The report: a self-contained page, of a study a text."""
        return self.file("report.html") or self.file("report.md")

    @property
    def picture(self) -> Optional[Path]:
        """The picture, as PNG; `plot.svg` is beside it."""
        return self.file("plot.png")

    @property
    def table(self) -> Optional[str]:
        """The table and remarks, as the program printed them; of a study the report."""
        path = self.file("table.txt") or self.file("report.md")
        return self.__dict__.get("_printed") if path is None else path.read_text("utf-8")

    @property
    def inputs(self) -> Optional[dict[str, Any]]:
        """`command`, and `settings` with the defaults filled in."""
        path = self.file("inputs.json")
        return None if path is None else json.loads(path.read_text("utf-8"))

    def _repr_html_picture(self) -> str:
        picture = self.picture
        if picture is None:
            return ""
        data = base64.b64encode(picture.read_bytes()).decode("ascii")
        return f'<img src="data:image/png;base64,{data}" style="max-width: 100%">'


class Result(RunFiles, TableRecord):
    """A result document, its fields as attributes, and the files of its run directory."""

    schema: int
    kind: str
    version: str
    machine: str

    def __init__(self, document: dict[str, Any], directory: Optional[Path] = None):
        super().__init__(document)
        self.__dict__["directory"] = directory

    @classmethod
    def _fields(cls) -> dict[str, Any]:
        return {name: hint for name, hint in super()._fields().items() if name != "directory"}

    @property
    def warnings(self) -> list[str]:
        """What makes the results say less than they seem to, each with the remedy."""
        return list(self.document.get("warnings", []))

    def rows(self) -> Rows:
        """The main numbers, as rows of a table."""
        return Rows([self.row()])

    def _heading(self) -> str:
        of = self.document.get("machine")
        return f"{self.kind} on {of}" if of else str(self.kind)

    def _limits(self) -> list[str]:
        """Sentences about what limits the results."""
        return []

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self._heading())}</b></p>", self.rows()._repr_html_()]
        parts += [f"<p>{escape(text)}</p>" for text in self._limits()]
        if self.warnings:
            items = "".join(f"<li>{escape(text)}</li>" for text in self.warnings)
            parts.append(f"<p>Warnings:</p><ul>{items}</ul>")
        parts.append(self._repr_html_picture())
        if self.report is not None:
            parts.append(f"<p>Report: <code>{escape(str(self.report))}</code></p>")
        return "".join(parts)
