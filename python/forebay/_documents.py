"""The objects in result documents. docs/results.md and docs/plan.md describe their fields.

Times are in seconds, sizes in bytes, rates in GB/s (10^9 bytes a second), shares from 0 to 1, unless a
field's name says otherwise.
"""

from typing import Any, Dict, List, Optional

from ._record import Record, Rows, Table


class Estimate(Record):
    """A quantity over several seeds: its mean, and half the width of its 95% confidence interval."""

    name: str
    unit: str
    mean: float
    half_width: Optional[float]
    deviation: Optional[float]
    values: List[float]


class Replication(Record):
    """Means of several seeds."""

    seeds: List[int]
    confidence: float
    estimates: Table[Estimate]

    def estimate(self, name: str) -> Optional[Estimate]:
        """That of a quantity; None if some seeds have no value of it."""
        return next((one for one in self.estimates if one.name == name), None)


class Series(Record):
    """Values over simulated time."""

    seconds: List[float]

    @property
    def columns(self) -> Dict[str, List[float]]:
        """The values of each column, one an interval."""
        return dict(self.document["columns"])

    def rows(self) -> Rows:
        """A row for each interval."""
        named = {"seconds": self.seconds, **self.columns}
        return Rows(dict(zip(named, values)) for values in zip(*named.values()))

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for each interval; needs pandas."""
        return self.rows().to_pandas()


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

    def __init__(self, document: Dict[str, Any]):
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
    heat: List[List[int]]
    series: Series
    warnings: List[str]


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
    seconds: List[List[float]]


class Delays(Record):
    """Delays by cause."""

    jobs: List[str]
    #: By class of links: `class`, `seconds`, `total_seconds`, `passages`.
    network: List[Dict[str, Any]]
    servers: Table[ServerDelays]

    def rows(self) -> Rows:
        """A row for each class of links, delayed job and delaying job."""
        return Rows(
            {"class": links["class"], "job": job, "delayed_by": by, "seconds": links["seconds"][i][j]}
            for links in self.network
            for i, job in enumerate(self.jobs)
            for j, by in enumerate(self.jobs)
        )

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the rows; needs pandas."""
        return self.rows().to_pandas()


class PublishedKind(Record):
    """Published measurements of the same kind, and how far simulations of them were off."""

    access: str
    files: str
    transfers: str
    file_system: str
    rows: List[str]
    hold: int
    error_percent: Optional[List[float]]
    fitted: int


class IorPoint(Record):
    """IOR at one node count."""

    nodes: int
    processes: int
    fidelity: str
    left_out: List[str]
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
    def warnings(self) -> List[str]:
        """The warnings about its phases, without those of repetitions."""
        first = (phase for phase in self.phases if phase.iteration == 0)
        return [warning for phase in first for warning in phase.warnings]

    def row(self) -> Dict[str, Any]:
        """Its rates and its limit; with several seeds means, and `_ci95`, half the interval's width."""
        write, read = self.best("write"), self.best("read")
        row: Dict[str, Any] = {
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


def with_intervals(row: Dict[str, Any], replication: Optional[Replication]) -> Dict[str, Any]:
    """A row with the means of several seeds and their intervals."""
    if replication is None:
        return row
    full: Dict[str, Any] = {}
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

    fidelity: str
    left_out: List[str]
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
    window_seconds: List[float]
    window_offered_load: float
    accepted_load: float
    run_load: float
    backlog_bytes: List[int]
    warnings: List[str]
    hops_mean: float
    hops_histogram: List[int]
    nonminimal_share: float
    latency_ns: Optional[Latency]
    links: Table[LinkClass]
    heat: List[List[int]]
    series: Series
    replication: Optional[Replication]
    saturation: Optional[Saturation]
    delays: Optional[Delays]


class CollectiveTimes(Record):
    """Times of a collective operation."""

    mean_seconds: float
    min_seconds: float
    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    process_mean_seconds: float
    iteration_seconds: List[float]
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

    settings: Dict[str, str]
    note: str
    fidelity: str
    remarks: List[str]
    seeds: List[int]
    confidence: float
    estimates: Table[Estimate]

    def value(self, name: str) -> Optional[float]:
        """The mean of a quantity, such as `write_GBps`."""
        return next((one.mean for one in self.estimates if one.name == name), None)


class JobSummary(Record):
    """The results of a job of a study."""

    time: Optional[Estimate]
    limits: List[str]
    p99: Optional[Estimate]
    accepted_load: Optional[Estimate]
    write_gbps: Optional[Estimate]
    read_gbps: Optional[Estimate]
    warnings: List[str]


class JobBeside(Record):
    """A job of a study beside others."""

    job: int
    alone: JobSummary
    together: JobSummary
    slowdown: Optional[Estimate]
    overlap: float
    added_waits: List[List[Any]]


class JobSet(Record):
    """Jobs of a study that run at the same time."""

    jobs: Table[JobBeside]
    delays: List[Dict[str, Any]]


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
    access_modes: List[str]
    transfer: int
    write_seconds: Optional[float]
    read_seconds: Optional[float]
    io_seconds: float
    is_bound: bool
    share: Optional[float]
    limit: str
    because: str
    warnings: List[str]
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


class Comparison(Record):
    """A published measurement and its simulation."""

    case: str
    row_id: str
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
    band: Optional[List[float]]
    status: str
    status_reasons: List[str]
    decided_by: List[str]
    limit: str
    tolerance: str
    met: bool
    verdict: str
    misses: Optional[str]
    warnings: List[str]
    axis: str
    steps: Table[Step]
    ior: str
    command: str
    scaling: str
    source: str

    def __init__(self, document: Dict[str, Any]):
        super().__init__(document)
        self.__dict__["row_id"] = document.get("row")
