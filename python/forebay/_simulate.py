"""The commands of the twin as functions. Arguments have the names of the options.

None and False leave an option out. `set` is a dictionary of numbers of the machine; `sweep` is one of
lists of values, or of ranges as the program writes them (`"1..16"`). Values with units are texts
(`"1GB/s"`). Results are in a run directory below `runs/`, in `out`, or, with `no_out`, in none.
"""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union, cast

from . import _command, _load, _program
from ._command import Words
from ._load import AnyResult
from ._program import Error
from ._result import Result
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
from ._studies import PlanResult, StudyResult

#: A path.
AnyPath = Union[str, "os.PathLike[str]"]
#: A number, or a text with a unit.
Value = Union[str, int, float]
#: A count, several, or a text such as `1..8192`.
Counts = Union[int, str, Sequence[int]]
#: Numbers of the machine by key, or texts `KEY=VALUE`.
Settings = Union[Mapping[str, Value], Sequence[str], str]
#: Values by swept key, or texts `KEY=VALUES`.
Sweeps = Union[Mapping[str, Union[str, Sequence[Value]]], Sequence[str], str]


def _result(words: list[str], test: list[str], misses: bool = False) -> AnyResult:
    """Runs a command that writes a result document, and reads that. `test` is IOR's command line.

    With `misses`, status 1 with a document is a result: of a comparison that misses its tolerance.
    """
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        document = Path(folder, "result.json")
        ended = _program.run([*words, f"--json={document}", *test])
        found = document.is_file()
        if not (found and misses and ended.status == 1):
            ended.checked()
        if not found:
            raise Error(f"forebay has written no results:\n{ended.stdout}", 0, ended.command)
        # The document names its run directory, if there is one.
        result = _load.read(document, None)
    # For `table`, if there is no run directory.
    result.__dict__["_printed"] = re.sub(r"\n*^JSON +.*\n*\Z", "\n", ended.stdout, flags=re.MULTILINE)
    # The caller of `ior` and of its like.
    return _load.show_warnings(result, stacklevel=4)


def _command_of(name: str, arguments: dict[str, Any], *others: str) -> list[str]:
    """The words of a command; `others` are arguments that are no options."""
    return ["sim", name, *_command.options(_command.given(arguments, *others))]


def ior(
    test: Words,
    machine: AnyPath,
    nodes: Counts,
    *,
    ppn: Optional[int] = None,
    fidelity: Optional[str] = None,
    burst_buffers: Optional[int] = None,
    file_system: Optional[str] = None,
    stripe_count: Optional[int] = None,
    stripe_size: Optional[Value] = None,
    log: Optional[str] = None,
    set: Optional[Settings] = None,
    sweep: Optional[Sweeps] = None,
    seed: Optional[int] = None,
    seeds: Optional[int] = None,
    routing: Optional[str] = None,
    placement: Optional[str] = None,
    groups: Optional[Union[int, str]] = None,
    node_kind: Optional[str] = None,
    packet: Optional[Value] = None,
    threads: Optional[int] = None,
    links: bool = False,
    delays: bool = False,
    series: bool = False,
    series_links: Optional[Union[int, str]] = None,
    trace: Optional[AnyPath] = None,
    trace_sample: Optional[str] = None,
    out: Optional[AnyPath] = None,
    no_out: bool = False,
    quiet: bool = False,
) -> Union[IorResult, IorResults, SweepResult]:
    """Simulates IOR: `forebay sim ior`, whose `--help` describes the options.

    `test` is IOR's command line, as a text or as words. The result is a `SweepResult` with `sweep`, and
    `IorResults` for an IOR script with several tests.
    """
    words = _command_of("ior", locals(), "test")
    return cast(Union[IorResult, IorResults, SweepResult], _result(words, _command.ior_words(test)))


def darshan(
    log: AnyPath,
    machine: AnyPath,
    *,
    nodes: Optional[int] = None,
    ppn: Optional[int] = None,
    fidelity: Optional[str] = None,
    burst_buffers: Optional[int] = None,
    file_system: Optional[str] = None,
    stripe_count: Optional[int] = None,
    stripe_size: Optional[Value] = None,
    set: Optional[Settings] = None,
    sweep: Optional[Sweeps] = None,
    seed: Optional[int] = None,
    seeds: Optional[int] = None,
    routing: Optional[str] = None,
    placement: Optional[str] = None,
    groups: Optional[Union[int, str]] = None,
    node_kind: Optional[str] = None,
    packet: Optional[Value] = None,
    threads: Optional[int] = None,
    out: Optional[AnyPath] = None,
    no_out: bool = False,
    quiet: bool = False,
) -> Union[DarshanResult, SweepResult]:
    """Simulates the I/O of a Darshan log: `forebay sim darshan`, whose `--help` describes the options
    (docs/darshan.md)."""
    words = [*_command_of("darshan", locals(), "log"), _command.path(log)]
    return cast(Union[DarshanResult, SweepResult], _result(words, []))


def traffic(
    machine: AnyPath,
    *,
    nodes: Optional[Union[int, str]] = None,
    pattern: Optional[str] = None,
    message: Optional[Value] = None,
    load: Optional[Value] = None,
    injection: Optional[str] = None,
    messages: Optional[int] = None,
    rate_limit: Optional[Value] = None,
    fidelity: Optional[str] = None,
    set: Optional[Settings] = None,
    sweep: Optional[Sweeps] = None,
    seed: Optional[int] = None,
    seeds: Optional[int] = None,
    routing: Optional[str] = None,
    placement: Optional[str] = None,
    groups: Optional[Union[int, str]] = None,
    node_kind: Optional[str] = None,
    packet: Optional[Value] = None,
    threads: Optional[int] = None,
    links: bool = False,
    delays: bool = False,
    series: bool = False,
    series_links: Optional[Union[int, str]] = None,
    trace: Optional[AnyPath] = None,
    trace_sample: Optional[str] = None,
    out: Optional[AnyPath] = None,
    no_out: bool = False,
    quiet: bool = False,
) -> Union[TrafficResult, SweepResult]:
    """Simulates traffic on the network: `forebay sim traffic`, whose `--help` describes the options."""
    return cast(Union[TrafficResult, SweepResult], _result(_command_of("traffic", locals()), []))


def interference(
    test: Words,
    machine: AnyPath,
    nodes: int,
    traffic_nodes: int,
    *,
    ppn: Optional[int] = None,
    burst_buffers: Optional[int] = None,
    traffic_placement: Optional[str] = None,
    pattern: Optional[str] = None,
    message: Optional[Value] = None,
    load: Optional[Value] = None,
    injection: Optional[str] = None,
    messages: Optional[int] = None,
    rate_limit: Optional[Value] = None,
    fidelity: Optional[str] = None,
    set: Optional[Settings] = None,
    sweep: Optional[Sweeps] = None,
    seed: Optional[int] = None,
    seeds: Optional[int] = None,
    routing: Optional[str] = None,
    placement: Optional[str] = None,
    groups: Optional[Union[int, str]] = None,
    node_kind: Optional[str] = None,
    packet: Optional[Value] = None,
    threads: Optional[int] = None,
    links: bool = False,
    delays: bool = False,
    series: bool = False,
    series_links: Optional[Union[int, str]] = None,
    trace: Optional[AnyPath] = None,
    trace_sample: Optional[str] = None,
    out: Optional[AnyPath] = None,
    no_out: bool = False,
    quiet: bool = False,
) -> Union[InterferenceResult, SweepResult]:
    """Simulates IOR and traffic, each also alone: `forebay sim interference`, whose `--help` describes
    the options. `test` is IOR's command line."""
    words = _command_of("interference", locals(), "test")
    return cast(Union[InterferenceResult, SweepResult], _result(words, _command.ior_words(test)))


def collective(
    operation: str,
    machine: AnyPath,
    nodes: int,
    *,
    test: Words = "",
    ppn: Optional[int] = None,
    size: Optional[Value] = None,
    algorithm: Optional[str] = None,
    iterations: Optional[int] = None,
    warm_up: Optional[int] = None,
    start: Optional[str] = None,
    traffic_nodes: Optional[int] = None,
    ior_nodes: Optional[int] = None,
    ior_ppn: Optional[int] = None,
    burst_buffers: Optional[int] = None,
    background_placement: Optional[str] = None,
    pattern: Optional[str] = None,
    message: Optional[Value] = None,
    load: Optional[Value] = None,
    injection: Optional[str] = None,
    messages: Optional[int] = None,
    rate_limit: Optional[Value] = None,
    fidelity: Optional[str] = None,
    set: Optional[Settings] = None,
    sweep: Optional[Sweeps] = None,
    seed: Optional[int] = None,
    seeds: Optional[int] = None,
    routing: Optional[str] = None,
    placement: Optional[str] = None,
    groups: Optional[Union[int, str]] = None,
    node_kind: Optional[str] = None,
    packet: Optional[Value] = None,
    threads: Optional[int] = None,
    links: bool = False,
    delays: bool = False,
    series: bool = False,
    series_links: Optional[Union[int, str]] = None,
    trace: Optional[AnyPath] = None,
    trace_sample: Optional[str] = None,
    out: Optional[AnyPath] = None,
    no_out: bool = False,
    quiet: bool = False,
) -> Union[CollectiveResult, SweepResult]:
    """Simulates a collective operation of MPI, alone and beside traffic or IOR (`test` with
    `ior_nodes`): `forebay sim collective`, whose `--help` describes the options."""
    words = [*_command_of("collective", locals(), "operation", "test"), operation]
    return cast(Union[CollectiveResult, SweepResult], _result(words, _command.ior_words(test)))


def jobs(
    traces: Union[AnyPath, Sequence[AnyPath]],
    *,
    machine: Optional[AnyPath] = None,
    nodes: Optional[int] = None,
    storage_nodes: Optional[int] = None,
    capacity: Optional[Value] = None,
    granularity: Optional[Value] = None,
    storage_rate: Optional[Value] = None,
    pfs_rate: Optional[Value] = None,
    policy: Union[str, Sequence[str], None] = None,
    bb_per_node: Optional[str] = None,
    stage_in: Optional[Value] = None,
    stage_out: Optional[Value] = None,
    checkpoint_every: Optional[str] = None,
    checkpoint: Optional[Value] = None,
    processors_per_node: Optional[int] = None,
    flops: Optional[float] = None,
    skip_impossible: bool = False,
    bound: Optional[str] = None,
    plan_depth: Optional[int] = None,
    plan_exponent: Optional[float] = None,
    set: Optional[Settings] = None,
    sweep: Optional[Sweeps] = None,
    seed: Optional[int] = None,
    threads: Optional[int] = None,
    out: Optional[AnyPath] = None,
    no_out: bool = False,
    quiet: bool = False,
) -> JobsResult:
    """Simulates a queue of jobs under scheduling policies: `forebay sim jobs`, whose `--help` describes
    the options (docs/jobs.md). `traces` is the path of a trace, or several; each is simulated alone."""
    words = _command_of("jobs", locals(), "traces")
    paths = [traces] if isinstance(traces, (str, os.PathLike)) else traces
    return cast(JobsResult, _result([*words, *map(_command.path, paths)], []))


def study(
    file: AnyPath, out: AnyPath, *, threads: Optional[int] = None, fidelity: Optional[str] = None
) -> StudyResult:
    """Carries out a study: `forebay study` (docs/study.md). Cases that the directory `out` has already
    are not simulated again."""
    options = _command.options({"out": out, "threads": threads, "fidelity": fidelity})
    _program.run(["study", *options, "--", _command.path(file)]).checked()
    result = _load.read(Path(out, "summary.json").absolute(), Path(out).absolute())
    return cast(StudyResult, _load.show_warnings(result))


def plan(
    script: Optional[AnyPath] = None,
    test: Words = "",
    *,
    machine: Optional[AnyPath] = None,
    pool: Union[bool, AnyPath, None] = None,
    rates: Optional[AnyPath] = None,
    nodes: Optional[int] = None,
    ppn: Optional[int] = None,
    checkpoint: Optional[Value] = None,
    darshan: Optional[AnyPath] = None,
    interval: Optional[str] = None,
    run_time: Optional[str] = None,
    keep: Optional[int] = None,
    stage_in: Optional[Value] = None,
    stage_out: Optional[Value] = None,
    fidelity: Optional[str] = None,
    placement: Optional[str] = None,
    seed: Optional[int] = None,
    node_kind: Optional[str] = None,
    set: Optional[Settings] = None,
) -> PlanResult:
    """Recommends a burst buffer for a job: `forebay plan` (docs/plan.md).

    `script` is the job script; `test` is the command line of IOR that stands for the job's I/O, unless
    `checkpoint` has a size or `darshan` names a Darshan log. `pool=True` is `--pool` without a file.
    """
    options = _command.options(_command.given(locals(), "script", "test"))
    words = ["plan", *([] if script is None else [_command.path(script)]), *options]
    return cast(PlanResult, _result(words, _command.ior_words(test)))


def validate(
    *,
    quick: bool = False,
    case: Union[str, Sequence[str], None] = None,
    set: Optional[Settings] = None,
    seed: Optional[int] = None,
    seeds: Optional[int] = None,
    fidelity: Optional[str] = None,
    results: Optional[AnyPath] = None,
    case_time: Optional[str] = None,
    cases: Union[str, Sequence[str], None] = None,
    kinds: Union[str, Sequence[str], None] = None,
    network: bool = False,
    sensitivity: bool = False,
    trajectories: Optional[int] = None,
    parameter: Union[str, Sequence[str], None] = None,
    deciding: bool = False,
    format: Optional[str] = None,
    threads: Optional[int] = None,
    out: Optional[AnyPath] = None,
    no_out: bool = False,
    quiet: bool = False,
) -> Result:
    """Simulates published measurements: `forebay validate`, whose `--help` describes the options.

    The result is a `ValidationResult`; a `SensitivityResult` with `sensitivity`. Rows that miss their
    tolerance are no error: `all_met` tells.
    """
    words = ["validate", *_command.options(locals())]
    return cast(Result, _result(words, [], misses=True))
