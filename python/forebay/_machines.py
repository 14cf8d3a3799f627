"""Machines, and job scripts."""

import json
import os
from typing import Any, Union

from . import _command, _program
from ._record import Record, Table


class MachineSummary(Record):
    """A built-in machine in a list."""

    machine: str
    groups: int
    routers: int
    compute: int
    burst_buffers: int
    description: str


class Machine(Record):
    """A machine, with all numbers in base units: bytes, bytes a second, picoseconds."""

    name: str
    title: str
    notes: str
    network: dict[str, Any]


def machines() -> "Table[MachineSummary]":
    """The built-in machines: `forebay machine list --json`."""
    printed = _program.run(["machine", "list", "--json"]).checked().stdout
    return Table(MachineSummary(one) for one in json.loads(printed))


def machine(name: "Union[str, os.PathLike[str]]") -> Machine:
    """A machine, by its name or the path of its file: `forebay machine show --json`."""
    printed = _program.run(["machine", "show", "--json", _command.path(name)]).checked().stdout
    return Machine(json.loads(printed))


def check(
    script: "Union[str, os.PathLike[str]]", *, pool: "Union[str, os.PathLike[str], None]" = None
) -> Record:
    """What a job script would get, without running it: `result` of `forebay check --json`."""
    options = _command.options({"pool": pool, "json": True})
    printed = _program.run(["check", *options, _command.path(script)]).checked().stdout
    return Record(json.loads(printed)["result"])
