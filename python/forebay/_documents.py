"""The objects in result documents. docs/results.md and docs/plan.md describe their fields.

Times are in seconds, sizes in bytes, rates in GB/s (10^9 bytes a second), shares from 0 to 1, unless a
field's name says otherwise.
"""

from typing import Any, Optional

from ._record import Record, Rows, Table, TableRecord


class Estimate(Record):
    """A quantity over several seeds: its mean, and half the width of its 95% confidence interval."""

    name: str
    unit: str
    mean: float
    half_width: Optional[float]
    deviation: Optional[float]
    values: list[float]


class Replication(Record):
    """Means of several seeds."""

    seeds: list[int]
    confidence: float
    estimates: Table[Estimate]

    def estimate(self, name: str) -> Optional[Estimate]:
        """That of a quantity; None if some seeds have no value of it."""
        return next((one for one in self.estimates if one.name == name), None)


class Series(TableRecord):
    """Values over simulated time."""

    seconds: list[float]

    @property
    def columns(self) -> dict[str, list[float]]:
        """The values of each column, one an interval."""
        return dict(self.document["columns"])

    def rows(self) -> Rows:
        """A row for each interval."""
        named = {"seconds": self.seconds, **self.columns}
        return Rows(dict(zip(named, values)) for values in zip(*named.values()))


class ResourceUse(Record):
    """Use of a kind of resources in a phase."""

    resource: str
    busiest: str
    peak_utilisation: float
    mean_utilisation: float
    time_share: float


class Limit(Record):
    """The limiting resource of a phase, and the evidence."""

    resource: str
    because: str
    evidence: Table[ResourceUse]


class LinkClass(Record):
    """Use of a class of links."""

    links: int
    bytes: int
    mean_utilisation: float
    max_utilisation: float
    stall_seconds: float
    max_queue_bytes: int
    #: The field `class`, which is a word of Python.
    name: str

    def __init__(self, document: dict[str, Any]):
        super().__init__(document)
        self.__dict__["name"] = document.get("class")


class NodeRates(Record):
    """Rates of nodes, over the nodes."""

    mean: float
    min: float
    p5: float
    p50: float
    p95: float
    max: float


class Spread(Record):
    """Times of operations, over the operations."""

    mean: float
    min: float
    p50: float
    p99: float
    max: float


class RunCost(Record):
    """Cost of a simulation."""

    wall_seconds: float
    simulated_seconds: float
    events: int
    packets_delivered: int
    threads: int
    peak_rss_bytes: int


class Phase(Record):
    """A phase of IOR."""

    access: str
    iteration: int
    bytes: int
    operations: int
    seconds: float
    open_seconds: float
    transfer_seconds: float
    close_seconds: float
    GBps: float
    steady_GBps: Optional[float]
    slowest_rank_GBps: float
    acknowledged_node_GBps: NodeRates
    iops: float
    operation_seconds: Spread
    least_mean_seconds: float
    limit: Limit
    links: Table[LinkClass]
    heat: list[list[int]]
    series: Series
    warnings: list[str]


class LoggedWrites(Record):
    """The write phase through the log of MPI-IO."""

    flush: str
    past_log: bool
    seconds: float
    complete_seconds: float
    GBps: float
    plain_seconds: float
    gain: float
    log: Optional[Phase]
    log_read: Optional[Phase]
    file_write: Optional[Phase]


class ServerDelays(Record):
    """Delays at a server; `seconds[i][j]`: of job i by job j."""

    node: int
    seconds: list[list[float]]


class Delays(TableRecord):
    """Delays by cause."""

    jobs: list[str]
    #: By class of links: `class`, `seconds`, `total_seconds`, `passages`.
    network: list[dict[str, Any]]
    servers: Table[ServerDelays]

    def rows(self) -> Rows:
        """A row for each class of links, delayed job and delaying job."""
        return Rows(
            {"class": links["class"], "job": job, "delayed_by": by, "seconds": links["seconds"][i][j]}
            for links in self.network
            for i, job in enumerate(self.jobs)
            for j, by in enumerate(self.jobs)
        )


class PublishedKind(Record):
    """Published measurements of the same kind, and how far simulations of them were off."""

    access: str
    files: str
    transfers: str
    file_system: str
    rows: list[str]
    hold: int
    error_percent: Optional[list[float]]
    fitted: int


class IorPoint(Record):
    """IOR at one node count."""

    nodes: int
    processes: int
    fidelity: str
    left_out: list[str]
    write_GBps: Optional[float]
    read_GBps: Optional[float]
    write_acknowledged_node_GBps: Optional[float]
    read_acknowledged_node_GBps: Optional[float]
    limit: str
    phases: Table[Phase]
    run: RunCost
    replication: Optional[Replication]
    logged: Optional[LoggedWrites]
    delays: Optional[Delays]

    def best(self, access: str) -> Optional[Phase]:
        """The fastest phase with this `access`, `write` or `read`."""
        phases = [phase for phase in self.phases if phase.access == access]
        return max(phases, key=lambda phase: phase.GBps, default=None)

    @property
    def warnings(self) -> list[str]:
        """The warnings about its phases, without those of repetitions."""
        first = (phase for phase in self.phases if phase.iteration == 0)
        return [warning for phase in first for warning in phase.warnings]

    def row(self) -> dict[str, Any]:
        """Its rates and its limit; with several seeds means, and `_ci95`, half the interval's width."""
        write, read = self.best("write"), self.best("read")
        row: dict[str, Any] = {
            "nodes": self.nodes,
            "processes": self.processes,
            "fidelity": self.fidelity,
            "write_GBps": self.write_GBps,
            "write_steady_GBps": write and write.steady_GBps,
            "read_GBps": self.read_GBps,
            "read_steady_GBps": read and read.steady_GBps,
            "write_acknowledged_node_GBps": self.write_acknowledged_node_GBps,
            "read_acknowledged_node_GBps": self.read_acknowledged_node_GBps,
        }
        if self.logged is not None:
            row["logged_write_GBps"] = self.logged.GBps
            row["logged_complete_seconds"] = self.logged.complete_seconds
            row["log_gain"] = self.logged.gain
        return {**with_intervals(row, self.replication), "limit": self.limit}


def with_intervals(row: dict[str, Any], replication: Optional[Replication]) -> dict[str, Any]:
    """A row with the means of several seeds and their intervals."""
    if replication is None:
        return row
    full: dict[str, Any] = {}
    for name, value in row.items():
        estimate = replication.estimate(name)
        full[name] = value if estimate is None else estimate.mean
        if estimate is not None:
            full[f"{name}_ci95"] = estimate.half_width
    return full


class Latency(Record):
    """Latencies of packets in nanoseconds."""

    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class SaturationStep(Record):
    """A load of a search."""

    offered_load: float
    accepted_load: float
    state: str
    latency_mean_ns: Optional[float]


class Saturation(Record):
    """The search for the greatest load that is accepted."""

    accepted: float
    refused: Optional[float]
    steps: Table[SaturationStep]


class TrafficRun(Record):
    """Traffic on the network."""

    schema: int
    kind: str
    version: str
    machine: str
    seed: int
    fidelity: str
    left_out: list[str]
    pattern: str
    routing: str
    nodes: int
    message_bytes: int
    messages: int
    messages_delivered: int
    packets_delivered: int
    bytes_delivered: int
    packets_per_second: float
    startup_seconds: float
    wall_seconds: float
    simulated_seconds: float
    events: int
    threads: int
    peak_rss_bytes: int
    offered_load: float
    state: str
    warm_up_seconds: Optional[float]
    window_seconds: list[float]
    window_offered_load: float
    accepted_load: float
    run_load: float
    backlog_bytes: list[int]
    hops_mean: float
    hops_histogram: list[int]
    nonminimal_share: float
    latency_ns: Optional[Latency]
    links: Table[LinkClass]
    heat: list[list[int]]
    series: Series
    replication: Optional[Replication]
    saturation: Optional[Saturation]
    delays: Optional[Delays]

    @property
    def warnings(self) -> list[str]:
        """What makes the results say less than they seem to, each with the remedy."""
        return list(self.document["warnings"])


class CollectiveTimes(Record):
    """Times of a collective operation."""

    mean_seconds: float
    min_seconds: float
    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    process_mean_seconds: float
    iteration_seconds: list[float]
    messages: int
    bytes: int
    links: Table[LinkClass]
    series: Series
    wall_seconds: float
    simulated_seconds: float
    events: int
    packets_delivered: int
    threads: int
    peak_rss_bytes: int


class SweepPoint(Record):
    """A combination of a sweep."""

    settings: dict[str, str]
    note: str
    fidelity: str
    remarks: list[str]
    seeds: list[int]
    confidence: float
    estimates: Table[Estimate]

    def value(self, name: str) -> Optional[float]:
        """The mean of a quantity, such as `write_GBps`."""
        return next((one.mean for one in self.estimates if one.name == name), None)


class DarshanPart(Record):
    """Requests of similar size in a phase of a Darshan log, as a test of IOR."""

    ior: list[str]
    nodes: int
    processes: int
    bytes: int
    operations: int
    simulated_bytes: int
    seconds: float
    slowest_rank_seconds: float
    limit: str
    because: str
    fidelity: str


class DarshanPhase(Record):
    """A phase of a Darshan log; without `parts` it is left out."""

    access: str
    files: str
    begin_seconds: float
    end_seconds: float
    processes: int
    file_count: int
    bytes: int
    operations: int
    left_out_bytes: int
    measured_seconds: float
    seconds: float
    slowest_rank_seconds: float
    limit: str
    parts: Table[DarshanPart]


class JobsTrace(Record):
    """A trace of jobs."""

    file: str
    jobs: int
    left_out: int
    cut: int


class JobsSummary(Record):
    """The jobs of a trace, or of all, under a policy."""

    jobs: int
    mean_wait_seconds: float
    median_wait_seconds: float
    p95_wait_seconds: float
    max_wait_seconds: float
    mean_bounded_slowdown: float
    node_utilization: float
    buffer_utilization: float
    buffer_delayed_jobs: int
    mean_buffer_delay_seconds: float
    stage_delayed_jobs: int
    mean_stage_delay_seconds: float
    makespan_seconds: float


class PolicyResult(JobsSummary):
    """A scheduling policy, and the jobs of all traces under it."""

    policy: str
    each_trace: Table[JobsSummary]


class JobsPoint(Record):
    """A machine of `forebay sim jobs`: a combination of a sweep."""

    settings: dict[str, str]
    nodes: int
    storage_nodes: int
    capacity_bytes: int
    granularity_bytes: int
    storage_in_GBps: Optional[float]
    storage_out_GBps: Optional[float]
    pfs_GBps: Optional[float]
    impossible_jobs: int
    policies: Table[PolicyResult]

    def policy(self, name: str) -> Optional[PolicyResult]:
        """That of a policy, such as `easy`; None if it was not simulated."""
        return next((one for one in self.policies if one.policy == name), None)
