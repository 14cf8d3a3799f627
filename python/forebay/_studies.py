"""Results of studies, plans and validations, and the objects in their documents."""

from typing import Any, Optional

from ._documents import Estimate, PublishedKind
from ._record import Record, Rows, Table
from ._result import Result


class JobSummary(Record):
    """The results of a job of a study."""

    time: Optional[Estimate]
    limits: list[str]
    p99: Optional[Estimate]
    accepted_load: Optional[Estimate]
    write_gbps: Optional[Estimate]
    read_gbps: Optional[Estimate]
    warnings: list[str]


class JobBeside(Record):
    """A job of a study beside others."""

    job: int
    alone: JobSummary
    together: JobSummary
    slowdown: Optional[Estimate]
    overlap: float
    added_waits: list[list[Any]]


class JobSet(Record):
    """Jobs of a study that run at the same time."""

    jobs: Table[JobBeside]
    delays: list[dict[str, Any]]


class Measure(Record):
    """A measure of a study: each job alone, each pair, all together."""

    name: str
    fidelity: str
    alone: Table[JobSummary]
    together: Table[JobSet]


class StageTime(Record):
    """A stage of a plan."""

    bytes: int
    seconds: float
    limit: str


class Configuration(Record):
    """A burst buffer or the parallel file system in a plan, and the I/O on it."""

    file_system: str
    capacity: Optional[str]
    stripe_count: Optional[int]
    storage_nodes: int
    access_modes: list[str]
    transfer: int
    write_seconds: Optional[float]
    read_seconds: Optional[float]
    io_seconds: float
    is_bound: bool
    share: Optional[float]
    limit: str
    because: str
    fidelity: Optional[str]
    left_out: list[str]
    warnings: list[str]
    stage_in: Optional[StageTime]
    stage_out: Optional[StageTime]


class Recommendation(Record):
    """What a plan recommends."""

    file_system: str
    directive: Optional[str]
    transfer: Optional[int]
    reason: str


class Alternative(Record):
    """Another possible meaning of a published measurement."""

    compared: str
    simulated: Optional[float]
    error_percent: Optional[float]


class Step(Record):
    """A point of the sweep behind a comparison."""

    x: float
    label: str
    value: Optional[float]
    half_width: Optional[float]
    beside: Optional[float]
    steady_GBps: Optional[float]
    limit: str


class PublishedRow(Record):
    """A published measurement."""

    #: The field `row`: the measurement's id.
    row_id: str

    def __init__(self, document: dict[str, Any]):
        super().__init__(document)
        self.__dict__["row_id"] = document.get("row")


class Comparison(PublishedRow):
    """A published measurement and its simulation."""

    case: str
    machine: str
    what: str
    measured: Optional[float]
    simulated: Optional[float]
    unit: str
    compared: str
    beside: Optional[Alternative]
    error_percent: Optional[float]
    interval: Optional[float]
    steady_GBps: Optional[float]
    band: Optional[list[float]]
    status: str
    status_reasons: list[str]
    decided_by: list[str]
    limit: str
    tolerance: str
    met: bool
    verdict: str
    misses: Optional[str]
    warnings: list[str]
    axis: str
    steps: Table[Step]
    ior: str
    command: str
    scaling: str
    source: str


class Sensitivity(Record):
    """The dependence of a measurement's simulated value on a number of the machine."""

    parameter: str
    low: Optional[int]
    base: int
    high: Optional[int]
    elasticity: Optional[float]
    central: Optional[bool]
    mu_star: Optional[float]
    sigma: Optional[float]


class SensitiveRow(PublishedRow):
    """The dependence of a measurement's simulated value on numbers of the machine."""

    case: str
    machine: str
    quantity: str
    simulated: Optional[float]
    unit: str
    sensitivities: Table[Sensitivity]


class StudyResult(Result):
    """The result of `forebay study`; a row has a measure, jobs that run together, and one of them."""

    title: str
    jobs: list[str]
    seeds: list[int]
    measures: Table[Measure]

    def rows(self) -> Rows:
        """With several seeds means, and half the widths of their intervals (`_ci95`)."""
        rows: list[dict[str, Any]] = []
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
    def warnings(self) -> list[str]:
        """The warnings about each job alone, and beside all others, with the first seed."""
        found: dict[str, None] = {}
        for measure in self.measures:
            alone = zip(self.jobs, measure.alone)
            of = [(f"{name} alone", job) for name, job in alone]
            last = measure.together[-1].jobs if measure.together else []
            of += [(f"{self.jobs[one.job]} beside the others", one.together) for one in last]
            for name, job in of:
                found.update((f"{measure.name}: {name}: {text}", None) for text in job.warnings)
        return list(found)


def _study_row(
    measure: str, together: list[str], job: str, summary: dict[str, Any], slowdown: Optional[dict[str, Any]]
) -> dict[str, Any]:
    row: dict[str, Any] = {"measure": measure, "together": " + ".join(together), "job": job}
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
    measured_seconds: Optional[float]

    @property
    def directive(self) -> Optional[str]:
        """The recommended `#DW` line; None if no burst buffer is recommended."""
        return self.recommendation.directive

    @property
    def warnings(self) -> list[str]:
        """What script and Darshan log do not determine; then the warnings about all simulations, each once."""
        every = [*self.configurations, *self.transfers]
        return self.log_warnings + sorted({text for one in every for text in one.warnings})

    @property
    def log_warnings(self) -> list[str]:
        """What script and Darshan log do not determine: the field `warnings` of the document."""
        return list(self.document.get("warnings", []))

    def rows(self) -> Rows:
        """The configurations; then, with `other_transfer`, the recommended one with other sizes."""
        every = Table([*self.configurations, *self.transfers]).rows()
        count = len(self.configurations)
        return Rows({"other_transfer": n >= count, **row} for n, row in enumerate(every))

    def _limits(self) -> list[str]:
        return [
            self.directive or f"Recommended: {self.recommendation.file_system}",
            self.recommendation.reason,
        ]


class ValidationResult(Result):
    """The result of `forebay validate`; a row has a published measurement.

    `comparisons` is the field `rows` of the document.
    """

    seed: int
    altered: list[str]

    @property
    def comparisons(self) -> Table[Comparison]:
        """The published measurements and their simulations."""
        return Table(Comparison(row) for row in self.document["rows"])

    @property
    def all_met(self) -> bool:
        """Whether each row is within its tolerance."""
        return all(row["met"] for row in self.document["rows"])

    @property
    def warnings(self) -> list[str]:
        """The warnings about the rows."""
        return [f"{one.row_id}: {text}" for one in self.comparisons for text in one.warnings]

    def rows(self) -> Rows:
        """A row for each published measurement."""
        return self.comparisons.rows()


class SensitivityResult(Result):
    """The result of `forebay validate --sensitivity`; a row has a measurement and a number.

    `measurements` is the field `rows` of the document.
    """

    seed: int
    altered: list[str]
    trajectories: int
    skipped: list[str]

    @property
    def measurements(self) -> Table[SensitiveRow]:
        """The measurements and the sensitivities of their simulated values."""
        return Table(SensitiveRow(row) for row in self.document["rows"])

    def rows(self) -> Rows:
        """The elasticity and the screening of each number."""
        return Rows(
            {"row": of.row_id, "case": of.case, "machine": of.machine, **one}
            for of in self.measurements
            for one in of.sensitivities.rows()
        )


class RowsResult(Result):
    """A document with a table `rows`: comparisons of the network, and of flows with packets."""

    def rows(self) -> Rows:
        """The rows of the document."""
        return Table(Record(row) for row in self.document["rows"]).rows()
