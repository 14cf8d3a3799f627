"""Results of simulations: `forebay sim`, and their sweeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ._documents import (
    CollectiveTimes,
    DarshanPhase,
    Delays,
    IorPoint,
    JobsPoint,
    JobsTrace,
    PublishedKind,
    Replication,
    RunCost,
    SweepPoint,
    TrafficRun,
    with_intervals,
)
from ._record import Rows, Table, cell
from ._result import Result, RunFiles


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


class IorResult(Result):
    """The result of `forebay sim ior`; a row has a node count."""

    ior: list[str]
    ppn: int
    file_system: str
    burst_buffers: int
    seed: int
    routing: str
    placement: str
    points: Table[IorPoint]
    published: Table[PublishedKind]

    @property
    def warnings(self) -> list[str]:
        """The warnings about its points."""
        return [f"{_nodes(point.nodes)}: {text}" for point in self.points for text in point.warnings]

    def rows(self) -> Rows:
        """A row for each node count."""
        return self.points.rows()

    def ior_output(self, nodes: int) -> Optional[str]:
        """The output of IOR at a node count; None without a run directory."""
        path = self.file(f"ior-{nodes}-nodes.txt")
        return None if path is None else path.read_text("utf-8")

    def _limits(self) -> list[str]:
        texts = []
        for point in self.points:
            phase = point.best("write") or point.best("read")
            if phase is not None:
                texts.append(f"{_nodes(point.nodes)}: {phase.limit.resource}: {phase.limit.because}")
        return texts


class IorResults(RunFiles, list[IorResult]):
    """The results of an IOR script with several tests, in their order."""

    def __init__(self, documents: Sequence[dict[str, Any]], directory: Optional[Path] = None):
        self.directory = directory
        tests = (directory / f"test-{place}" for place in range(len(documents))) if directory else ()
        folders: list[Optional[Path]] = [one if one.is_dir() else None for one in tests]
        folders += [None] * (len(documents) - len(folders))
        super().__init__(IorResult(one, folder) for one, folder in zip(documents, folders))

    @property
    def warnings(self) -> list[str]:
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


class DarshanResult(Result):
    """The result of `forebay sim darshan`; a row has a phase of the log that was simulated."""

    log: str
    program: str
    nodes: int
    ppn: int
    processes: int
    run_seconds: float
    has_traces: bool
    file_system: str
    burst_buffers: int
    seed: int
    routing: str
    placement: str
    bytes: int
    measured_seconds: float
    measured_GBps: Optional[float]
    seconds: float
    slowest_rank_seconds: float
    slowest_rank_GBps: Optional[float]
    write_seconds: Optional[float]
    read_seconds: Optional[float]
    predicted_run_seconds: Optional[float]
    limit: str
    phases: Table[DarshanPhase]
    left_out: list[str]
    published: Table[PublishedKind]
    run: RunCost
    replication: Optional[Replication]

    def rows(self) -> Rows:
        """A row for each simulated phase, of the first seed; `replication` has the means of several."""
        return Table(phase for phase in self.phases if phase.parts).rows()

    def _limits(self) -> list[str]:
        log, simulated = cell(self.measured_seconds), cell(self.slowest_rank_seconds)
        parts = (part for phase in self.phases for part in phase.parts if part.limit == self.limit)
        slowest = max(parts, key=lambda part: part.slowest_rank_seconds, default=None)
        limit = [] if slowest is None else [f"{self.limit}: {slowest.because}"]
        return [f"The slowest processes in calls: {log} s in the log, {simulated} s simulated", *limit]


class JobsResult(Result):
    """The result of `forebay sim jobs`; a row has a policy at a combination of the swept values.

    In its run directory, `file("jobs.csv")` has each job and `file("series.csv")` the use over time.
    """

    #: None without a machine file.
    machine: Optional[str]  # type: ignore[assignment]
    seed: int
    bb_per_node: Optional[str]
    bound_seconds: float
    traces: Table[JobsTrace]
    points: Table[JobsPoint]

    def rows(self) -> Rows:
        """The values of swept keys (numbers where all are), the policy, and its results."""
        keys = dict.fromkeys(key for point in self.points for key in point.settings)
        swept = {key: _numbers([point.settings[key] for point in self.points]) for key in keys}
        return Rows(
            {**{key: values[place] for key, values in swept.items()}, **row}
            for place, point in enumerate(self.points)
            for row in point.policies.rows()
        )


class TrafficResult(TrafficRun, Result):
    """The result of `forebay sim traffic`."""

    def rows(self) -> Rows:
        """One row; with several seeds means, and `_ci95`, half the width of their intervals."""
        return Rows([{"pattern": self.pattern, "nodes": self.nodes, **_traffic_row(self)}])

    def row(self) -> dict[str, Any]:
        """That of `rows()`."""
        return self.rows()[0]


def _traffic_row(run: TrafficRun) -> dict[str, Any]:
    latency = run.latency_ns
    row: dict[str, Any] = {
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
    def warnings(self) -> list[str]:
        """The warnings about each job."""
        ior = (("IOR alone", self.ior_alone), ("IOR together", self.ior_together))
        traffic = (("traffic alone", self.traffic_alone), ("traffic together", self.traffic_together))
        found = [f"{of}: {text}" for of, point in ior for one in point.phases for text in one.warnings]
        return found + [f"{of}: {text}" for of, run in traffic for text in run.warnings]

    def rows(self) -> Rows:
        """Four rows, of the first seed; `replication` has the means of several."""
        ior = (("alone", self.ior_alone), ("together", self.ior_together))
        traffic = (("alone", self.traffic_alone), ("together", self.traffic_together))
        none = {"write_GBps": None, "read_GBps": None, "accepted_load": None, "latency_mean": None}
        rows: list[dict[str, Any]] = []
        for when, point in ior:
            rates = {"write_GBps": point.write_GBps, "read_GBps": point.read_GBps}
            rows.append({"job": "ior", "when": when, **none, **rates, "note": point.limit})
        for when, run in traffic:
            latency = run.latency_ns and run.latency_ns.mean
            loads = {"accepted_load": run.accepted_load, "latency_mean": latency}
            rows.append({"job": "traffic", "when": when, **none, **loads, "note": run.state})
        return Rows(rows)

    def _limits(self) -> list[str]:
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
    def warnings(self) -> list[str]:
        """The warnings about the operation and the traffic beside it."""
        traffic = self.traffic_together
        of_traffic = [] if traffic is None else traffic.warnings
        return [*self.document["warnings"], *(f"the traffic: {text}" for text in of_traffic)]


class SweepResult(Result):
    """The result of a command with `sweep`; a row has a combination, as in `sweep.csv`."""

    command: list[str]
    keys: list[str]
    points: Table[SweepPoint]

    def rows(self) -> Rows:
        """The values of the keys (numbers where all are), means, half widths of their 95% intervals
        (`_ci95`), number of seeds, note and fidelity."""
        names = dict.fromkeys(one.name for point in self.points for one in point.estimates)
        keys = {key: _numbers([point.settings[key] for point in self.points]) for key in self.keys}
        rows = []
        for place, point in enumerate(self.points):
            row: dict[str, Any] = {key: values[place] for key, values in keys.items()}
            estimates = {one.name: one for one in point.estimates}
            for name in names:
                estimate = estimates.get(name)
                row[name] = estimate and estimate.mean
                row[f"{name}_ci95"] = estimate and estimate.half_width
            rows.append({**row, "seeds": len(point.seeds), "note": point.note, "fidelity": point.fidelity})
        return Rows(rows)

    @property
    def warnings(self) -> list[str]:
        """The warnings about its points, each once."""
        texts = (text for point in self.points for text in point.remarks)
        marked = (text for text in texts if text.startswith("warning: "))
        return list(dict.fromkeys(text[len("warning: ") :] for text in marked))


def _numbers(texts: list[str]) -> list[Any]:
    """Texts as whole numbers, as numbers, or as they are."""
    for kind in (int, float):
        try:
            return [kind(text) for text in texts]
        except ValueError:
            pass
    return list(texts)
