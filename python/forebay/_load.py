"""Reading of results."""

import json
import os
import warnings as python_warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, Union

from ._program import Error
from ._result import Result, ResultWarning
from ._simulations import (
    CollectiveResult,
    DarshanResult,
    InterferenceResult,
    IorResult,
    IorResults,
    JobsResult,
    SweepResult,
    TrafficResult,
)
from ._studies import PlanResult, RowsResult, SensitivityResult, StudyResult, ValidationResult

#: The newest version of the documents that this package knows.
SCHEMA = 2

_KINDS: dict[str, type[Result]] = {
    "sim ior": IorResult,
    "sim darshan": DarshanResult,
    "sim traffic": TrafficResult,
    "sim interference": InterferenceResult,
    "sim collective": CollectiveResult,
    "sim jobs": JobsResult,
    "sweep": SweepResult,
    "study": StudyResult,
    "plan": PlanResult,
    "validate": ValidationResult,
    "sensitivity": SensitivityResult,
}

#: Any result.
AnyResult = Union[Result, IorResults]


def _documents(value: Any) -> Iterator[dict[str, Any]]:
    for document in value if isinstance(value, list) else [value]:
        if not isinstance(document, dict) or not {"schema", "kind"} <= document.keys():
            raise ValueError("no `schema` and `kind`")
        yield document


def _directory_of(document: dict[str, Any]) -> Optional[Path]:
    """Takes the run directory out of the document of a `--json` file; None if it is not there any more."""
    text = document.pop("directory", None)
    return Path(text) if text is not None and Path(text, "summary.json").is_file() else None


def result_of(value: Any, directory: Optional[Path], place: str) -> AnyResult:
    """The result of a parsed document, which was read at `place`. Without `directory` the document may
    name its own."""
    try:
        documents = list(_documents(value))
    except ValueError as error:
        raise Error(f"{place} is no result document of forebay: {error}") from None
    named = [_directory_of(document) for document in documents]
    if isinstance(value, list):
        # Each test has a folder in the run directory.
        first = named[0] if named else None
        return IorResults(documents, directory or (first and first.parent))
    directory = directory or named[0]
    (document,) = documents
    rows = document.get("rows")
    kind = _KINDS.get(document["kind"], RowsResult if isinstance(rows, list) else Result)
    return kind(document, directory)


def read(path: Path, directory: Optional[Path]) -> AnyResult:
    """The result in a JSON file."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise Error(f"{path} is no result document of forebay: {error}") from None
    return result_of(value, directory, str(path))


def load(run_directory: "Union[str, os.PathLike[str]]") -> AnyResult:
    """The result in a run directory, in that of a study, or in a file of `--json`."""
    path = Path(run_directory).absolute()
    if not path.is_dir():
        return show_warnings(read(path, path.parent if path.name == "summary.json" else None))
    summary = path / "summary.json"
    if not summary.is_file():
        raise Error(f"{path} is no run directory of forebay: it has no summary.json")
    return show_warnings(read(summary, path))


def _of_version(document: dict[str, Any]) -> Iterator[str]:
    """Warnings about the version of a document."""
    schema, kind = document["schema"], document["kind"]
    if schema > SCHEMA:
        yield f"the document has version {schema}; this package knows versions up to {SCHEMA}"
    if schema == 1 and kind == "sim traffic":
        yield "the document has version 1, in which loads and latencies of traffic include the warm-up"


def show_warnings(result: AnyResult, stacklevel: int = 3) -> AnyResult:
    """Shows that a result has warnings, with the module `warnings`, at the line of the user's call."""
    documents = [one.document for one in result] if isinstance(result, IorResults) else [result.document]
    texts = [text for document in documents for text in _of_version(document)]
    texts = list(dict.fromkeys([*texts, *result.warnings]))
    if texts:
        more = f" ({len(texts) - 1} more in `warnings` of the result)" if len(texts) > 1 else ""
        python_warnings.warn(texts[0] + more, ResultWarning, stacklevel=stacklevel)
    return result
