"""Logs of MPI-IO writes that programs left (docs/mpilog.md)."""

import json
import os
from typing import Optional, Union

from . import _command, _program
from ._record import Record, Table


class LogSlot(Record):
    """The writes of a process in a log."""

    rank: int
    writes: int
    bytes: int
    dropped_writes: int
    damaged_records: int


class Log(Record):
    """A log; `state` is `closed`, `interrupted`, `damaged`, `in use`, `blank` or `unreadable`."""

    log: str
    state: str
    error: Optional[str]
    file: Optional[str]
    run: Optional[str]
    ranks: Optional[int]
    created_seconds: Optional[int]
    slots: Table[LogSlot]


def logs(*directories: "Union[str, os.PathLike[str]]") -> "Table[Log]":
    """The logs in directories: `forebay log list`."""
    paths: list[str] = [_command.path(directory) for directory in directories]
    printed = _program.run(["log", "list", "--json", *paths]).checked().stdout
    return Table(Log(one) for one in json.loads(printed))
