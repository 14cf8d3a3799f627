"""Results: documents with the files of their run directories."""

import base64
import json
import os
import warnings as python_warnings
from html import escape
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Type, Union

from ._documents import (
    CollectiveTimes,
    Comparison,
    Configuration,
    Delays,
    IorPoint,
    Measure,
    PublishedKind,
    Recommendation,
    Replication,
    SweepPoint,
    TrafficRun,
    with_intervals,
)
from ._program import Error
from ._record import Record, Rows, Table, cell

#: The newest version of the documents that this package knows.
SCHEMA = 2


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
    def inputs(self) -> Optional[Dict[str, Any]]:
        """`command`, and `settings` with the defaults filled in."""
        path = self.file("inputs.json")
        return None if path is None else json.loads(path.read_text("utf-8"))

    def _repr_html_picture(self) -> str:
        picture = self.picture
        if picture is None:
            return ""
        data = base64.b64encode(picture.read_bytes()).decode("ascii")
        return f'<img src="data:image/png;base64,{data}" style="max-width: 100%">'


class Result(RunFiles, Record):
    """A result document, its fields as attributes, and the files of its run directory."""

    schema: int
    kind: str
    version: str
    machine: str

    def __init__(self, document: Dict[str, Any], directory: Optional[Path] = None):
        super().__init__(document)
        self.__dict__["directory"] = directory

    @classmethod
    def _fields(cls) -> Dict[str, Any]:
        return {name: hint for name, hint in super()._fields().items() if name != "directory"}

    @property
    def warnings(self) -> List[str]:
        """What makes the results say less than they seem to, each with the remedy."""
        return list(self.document.get("warnings", []))

    def rows(self) -> Rows:
        """The main numbers, as rows of a table."""
        return Rows([self.row()])

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the rows; needs pandas."""
        return self.rows().to_pandas()

    def _heading(self) -> str:
        of = self.document.get("machine")
        return f"{self.kind} on {of}" if of else str(self.kind)

    def _limits(self) -> List[str]:
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


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


class IorResult(Result):
    """The result of `forebay sim ior`; a row has a node count."""

    ior: List[str]
    ppn: int
    file_system: str
    burst_buffers: int
    seed: int
    routing: str
    placement: str
    points: Table[IorPoint]
    published: Table[PublishedKind]

    @property
    def warnings(self) -> List[str]:
        """The warnings about its points."""
        return [f"{_nodes(point.nodes)}: {text}" for point in self.points for text in point.warnings]

    def rows(self) -> Rows:
        """A row for each node count."""
        return self.points.rows()

    def ior_output(self, nodes: int) -> Optional[str]:
        """The output of IOR at a node count; None without a run directory."""
        path = self.file(f"ior-{nodes}-nodes.txt")
        return None if path is None else path.read_text("utf-8")

    def _limits(self) -> List[str]:
        texts = []
        for point in self.points:
            phase = point.best("write") or point.best("read")
            if phase is not None:
                texts.append(f"{_nodes(point.nodes)}: {phase.limit.resource}: {phase.limit.because}")
        return texts


class IorResults(RunFiles, List[IorResult]):
    """The results of an IOR script with several tests, in their order."""

    def __init__(self, documents: Sequence[Dict[str, Any]], directory: Optional[Path] = None):
        self.directory = directory
        tests = (directory / f"test-{place}" for place in range(len(documents))) if directory else ()
        folders: List[Optional[Path]] = [one if one.is_dir() else None for one in tests]
        folders += [None] * (len(documents) - len(folders))
        super().__init__(IorResult(one, folder) for one, folder in zip(documents, folders))

    @property
    def warnings(self) -> List[str]:
        """The warnings about all tests."""
        return [f"test {n}: {text}" for n, result in enumerate(self) for text in result.warnings]

    def rows(self) -> Rows:
        """A row for each test and node count."""
        return Rows({"test": n, **row} for n, result in enumerate(self) for row in result.rows())

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the rows; needs pandas."""
        return self.rows().to_pandas()

    def _repr_html_(self) -> str:
        return "".join(result._repr_html_() for result in self)


class TrafficResult(TrafficRun, Result):
    """The result of `forebay sim traffic`."""

    seed: int

    @property
    def warnings(self) -> List[str]:
        """What makes the results say less than they seem to, each with the remedy."""
        return list(self.document["warnings"])

    def rows(self) -> Rows:
        """One row; with several seeds means, and `_ci95`, half the width of their intervals."""
        return Rows([{"pattern": self.pattern, "nodes": self.nodes, **_traffic_row(self)}])

    def row(self) -> Dict[str, Any]:
        """That of `rows()`."""
        return self.rows()[0]


def _traffic_row(run: TrafficRun) -> Dict[str, Any]:
    latency = run.latency_ns
    row: Dict[str, Any] = {
        "offered_load": run.offered_load,
        "state": run.state,
        "accepted_load": run.accepted_load,
        "latency_mean": latency and latency.mean,
        "latency_p50": latency and latency.p50,
        "latency_p99": latency and latency.p99,
        "hops_mean": run.hops_mean,
        "nonminimal_share": run.nonminimal_share,
        "run_load": run.run_load,
    }
    return with_intervals(row, run.replication)


class InterferenceResult(Result):
    """The result of `forebay sim interference`; a row has a job, alone or together with the other."""

    fidelity: str
    ior_placement: str
    traffic_placement: str
    ior_alone: IorPoint
    ior_together: IorPoint
    traffic_alone: TrafficRun
    traffic_together: TrafficRun
    ior_rate_ratio: float
    traffic_latency_ratio: Optional[float]
    replication: Optional[Replication]

    @property
    def warnings(self) -> List[str]:
        """The warnings about each job."""
        ior = (("IOR alone", self.ior_alone), ("IOR together", self.ior_together))
        traffic = (("traffic alone", self.traffic_alone), ("traffic together", self.traffic_together))
        found = [f"{of}: {text}" for of, point in ior for one in point.phases for text in one.warnings]
        return found + [f"{of}: {text}" for of, run in traffic for text in run.warnings]

    def rows(self) -> Rows:
        """Four rows, of the first seed; `replication` has the means of several."""
        rows = []
        for beside, point in (("alone", self.ior_alone), ("together", self.ior_together)):
            row = {"job": "ior", "when": beside, "write_GBps": point.write_GBps}
            row.update(read_GBps=point.read_GBps, accepted_load=None, latency_mean=None)
            rows.append({**row, "note": point.limit})
        for beside, run in (("alone", self.traffic_alone), ("together", self.traffic_together)):
            row = {"job": "traffic", "when": beside, "write_GBps": None, "read_GBps": None}
            latency = run.latency_ns and run.latency_ns.mean
            row.update(accepted_load=run.accepted_load, latency_mean=latency)
            rows.append({**row, "note": run.state})
        return Rows(rows)

    def _limits(self) -> List[str]:
        latency = self.traffic_latency_ratio
        return [
            f"IOR's rate together / alone: {cell(self.ior_rate_ratio)}",
            f"The traffic's mean latency together / alone: {cell(latency) or 'none'}",
        ]


class CollectiveResult(Result):
    """The result of `forebay sim collective`; a row is without or with the other job."""

    operation: str
    algorithm: str
    rounds: int
    size_bytes: int
    nodes: int
    processes: int
    placement: str
    routing: str
    seed: int
    bytes_per_operation: int
    one_way_seconds: Optional[float]
    GBps: float
    background: Optional[str]
    alone: CollectiveTimes
    together: Optional[CollectiveTimes]
    mean_ratio: Optional[float]
    p99_ratio: Optional[float]
    traffic_together: Optional[TrafficRun]
    ior_together: Optional[IorPoint]
    delays: Optional[Delays]
    replication: Optional[Replication]

    def rows(self) -> Rows:
        """A row for the times alone, and one for those beside the other job."""
        times = [("alone", self.alone), ("together", self.together)]
        names = ("mean", "min", "p50", "p99", "max", "process_mean")
        return Rows(
            {"when": when, **{f"{name}_seconds": of.document[f"{name}_seconds"] for name in names}}
            for when, of in times
            if of is not None
        )

    @property
    def warnings(self) -> List[str]:
        """The warnings about the operation and the traffic beside it."""
        traffic = self.traffic_together
        of_traffic = [] if traffic is None else traffic.warnings
        return [*self.document["warnings"], *(f"the traffic: {text}" for text in of_traffic)]


class SweepResult(Result):
    """The result of a command with `sweep`; a row has a combination, as in `sweep.csv`."""

    command: List[str]
    keys: List[str]
    points: Table[SweepPoint]

    def rows(self) -> Rows:
        """The values of the keys (numbers where all are), means, half widths of their 95% intervals
        (`_ci95`), number of seeds, note and fidelity."""
        names = dict.fromkeys(one.name for point in self.points for one in point.estimates)
        keys = {key: _numbers([point.settings[key] for point in self.points]) for key in self.keys}
        rows = []
        for place, point in enumerate(self.points):
            row: Dict[str, Any] = {key: values[place] for key, values in keys.items()}
            estimates = {one.name: one for one in point.estimates}
            for name in names:
                estimate = estimates.get(name)
                row[name] = estimate and estimate.mean
                row[f"{name}_ci95"] = estimate and estimate.half_width
            rows.append({**row, "seeds": len(point.seeds), "note": point.note, "fidelity": point.fidelity})
        return Rows(rows)

    @property
    def warnings(self) -> List[str]:
        """The warnings about its points, each once."""
        texts = (text for point in self.points for text in point.remarks)
        marked = (text for text in texts if text.startswith("warning: "))
        return list(dict.fromkeys(text[len("warning: ") :] for text in marked))


def _numbers(texts: List[str]) -> List[Any]:
    """Texts as whole numbers, as numbers, or as they are."""
    for kind in (int, float):
        try:
            return [kind(text) for text in texts]
        except ValueError:
            pass
    return list(texts)


class StudyResult(Result):
    """The result of `forebay study`; a row has a measure, jobs that run together, and one of them."""

    title: str
    jobs: List[str]
    seeds: List[int]
    measures: Table[Measure]

    def rows(self) -> Rows:
        """With several seeds means, and half the widths of their intervals (`_ci95`)."""
        rows: List[Dict[str, Any]] = []
        for measure in self.measures:
            for job, name in zip(measure.alone, self.jobs):
                rows.append(_study_row(measure.name, [name], name, job.document, None))
            for together in measure.together:
                names = [self.jobs[beside.job] for beside in together.jobs]
                for beside, name in zip(together.jobs, names):
                    of = (beside.together.document, beside.document.get("slowdown"))
                    rows.append(_study_row(measure.name, names, name, *of))
        return Rows(rows)

    @property
    def warnings(self) -> List[str]:
        """The warnings about each job alone, and beside all others, with the first seed."""
        found: Dict[str, None] = {}
        for measure in self.measures:
            alone = zip(self.jobs, measure.alone)
            of = [(f"{name} alone", job) for name, job in alone]
            last = measure.together[-1].jobs if measure.together else []
            of += [(f"{self.jobs[one.job]} beside the others", one.together) for one in last]
            for name, job in of:
                found.update((f"{measure.name}: {name}: {text}", None) for text in job.warnings)
        return list(found)


def _study_row(
    measure: str, together: List[str], job: str, summary: Dict[str, Any], slowdown: Optional[Dict[str, Any]]
) -> Dict[str, Any]:
    row: Dict[str, Any] = {"measure": measure, "together": " + ".join(together), "job": job}
    quantities = {
        "seconds": summary.get("time"),
        "slowdown": slowdown,
        "p99_seconds": summary.get("p99"),
        "accepted_load": summary.get("accepted_load"),
        "write_GBps": summary.get("write_gbps"),
        "read_GBps": summary.get("read_gbps"),
    }
    for name, estimate in quantities.items():
        row[name] = estimate and estimate["mean"]
        row[f"{name}_ci95"] = estimate and estimate["half_width"]
    return {**row, "limit": ", ".join(dict.fromkeys(summary.get("limits", [])))}


class PlanResult(Result):
    """The result of `forebay plan`; a row has a configuration."""

    nodes: int
    processes_per_node: int
    needed_bytes: int
    configurations: Table[Configuration]
    transfers: Table[Configuration]
    recommendation: Recommendation
    published: Table[PublishedKind]

    @property
    def directive(self) -> Optional[str]:
        """The recommended `#DW` line; None if no burst buffer is recommended."""
        return self.recommendation.directive

    @property
    def warnings(self) -> List[str]:
        """The warnings about all simulations, each once."""
        every = [*self.configurations, *self.transfers]
        return sorted({text for one in every for text in one.warnings})

    def rows(self) -> Rows:
        """The configurations; then, with `other_transfer`, the recommended one with other sizes."""
        every = Table([*self.configurations, *self.transfers]).rows()
        count = len(self.configurations)
        return Rows({"other_transfer": n >= count, **row} for n, row in enumerate(every))

    def _limits(self) -> List[str]:
        return [self.directive or f"Recommended: {self.recommendation.file_system}", self.recommendation.reason]


class ValidationResult(Result):
    """The result of `forebay validate`; a row has a published measurement.

    `comparisons` is the field `rows` of the document.
    """

    seed: int
    altered: List[str]

    @property
    def comparisons(self) -> Table[Comparison]:
        """The published measurements and their simulations."""
        return Table(Comparison(row) for row in self.document["rows"])

    @property
    def all_met(self) -> bool:
        """Whether each row is within its tolerance."""
        return all(row["met"] for row in self.document["rows"])

    @property
    def warnings(self) -> List[str]:
        """The warnings about the rows."""
        return [f"{one.row_id}: {text}" for one in self.comparisons for text in one.warnings]

    def rows(self) -> Rows:
        """A row for each published measurement."""
        return self.comparisons.rows()


class SensitivityResult(Result):
    """The result of `forebay validate --sensitivity`; a row has a measurement and a number."""

    seed: int
    altered: List[str]
    trajectories: int
    skipped: List[str]

    def rows(self) -> Rows:
        """The elasticity and the screening of each number."""
        return Rows(
            {"row": of["row"], "case": of["case"], "machine": of["machine"], **one}
            for of in self.document["rows"]
            for one in of["sensitivities"]
        )


class RowsResult(Result):
    """A document with a table `rows`: comparisons of the network, and of flows with packets."""

    def rows(self) -> Rows:
        """The rows of the document."""
        return Table(Record(row) for row in self.document["rows"]).rows()


_KINDS: Dict[str, Type[Result]] = {
    "sim ior": IorResult,
    "sim traffic": TrafficResult,
    "sim interference": InterferenceResult,
    "sim collective": CollectiveResult,
    "sweep": SweepResult,
    "study": StudyResult,
    "plan": PlanResult,
    "validate": ValidationResult,
    "sensitivity": SensitivityResult,
}

#: Any result.
AnyResult = Union[Result, IorResults]


def _documents(value: Any) -> Iterator[Dict[str, Any]]:
    for document in value if isinstance(value, list) else [value]:
        if not isinstance(document, dict) or not {"schema", "kind"} <= document.keys():
            raise ValueError("no `schema` and `kind`")
        yield document


def result_of(value: Any, directory: Optional[Path], place: str) -> AnyResult:
    """The result of a parsed document, which was read at `place`."""
    try:
        documents = list(_documents(value))
    except ValueError as error:
        raise Error(f"{place} is no result document of forebay: {error}") from None
    if isinstance(value, list):
        return IorResults(documents, directory)
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
    path = Path(run_directory)
    if not path.is_dir():
        return show_warnings(read(path, path.parent if path.name == "summary.json" else None))
    summary = path / "summary.json"
    if not summary.is_file():
        raise Error(f"{path} is no run directory of forebay: it has no summary.json")
    return show_warnings(read(summary, path))


def _of_version(document: Dict[str, Any]) -> Iterator[str]:
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
