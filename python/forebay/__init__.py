"""Forebay in Python: simulations, plans and pools, by the program `forebay`.

    import forebay
    result = forebay.ior("-a POSIX -F -w -t 1m -b 16m", machine="toy", nodes=[1, 2, 4])
    result.points[-1].write_GBps, result.rows(), result.report

docs/python.md describes the package; functions and their arguments have the names of commands and
options.
"""

from . import log, pool
from ._load import load
from ._machines import Machine, MachineSummary, check, machine, machines
from ._program import Error, ProgramNotFound, program, version
from ._record import Record, Rows, Table
from ._result import Result, ResultWarning
from ._simulate import collective, darshan, interference, ior, jobs, plan, study, traffic, validate
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
from ._studies import PlanResult, SensitivityResult, StudyResult, ValidationResult
from ._version import __version__

__all__ = [
    "CollectiveResult",
    "DarshanResult",
    "Error",
    "InterferenceResult",
    "IorResult",
    "IorResults",
    "JobsResult",
    "Machine",
    "MachineSummary",
    "PlanResult",
    "ProgramNotFound",
    "Record",
    "Result",
    "ResultWarning",
    "Rows",
    "SensitivityResult",
    "StudyResult",
    "SweepResult",
    "Table",
    "TrafficResult",
    "ValidationResult",
    "__version__",
    "check",
    "collective",
    "darshan",
    "interference",
    "ior",
    "jobs",
    "load",
    "log",
    "machine",
    "machines",
    "plan",
    "pool",
    "program",
    "study",
    "traffic",
    "validate",
    "version",
]
