"""Pools: the commands of users and operators that answer in JSON.

`pool` is the configuration of a pool over several hosts or the directory of an embedded pool; without
it, the program chooses as its `--pool` says. Sizes are in bytes; `created`, `ended` and `at` are
milliseconds since 1970, `milliseconds` is a duration.
"""

import json
import os
from typing import Any, Optional, Union

from . import _command, _program
from ._record import Record, Table

_Pool = Union[str, "os.PathLike[str]", None]


class Pool(Record):
    """A pool; `quantity` and `free` are granules of `granularity` bytes."""

    name: str
    granularity: int
    quantity: int
    free: int


class Node(Record):
    """A storage node; `granules` and `used` are granules, `written` bytes."""

    id: Any
    name: str
    pool: str
    online: bool
    drained: bool
    evacuates: bool
    forgotten: bool
    granules: int
    used: int
    fragments: int
    written: int
    wrong_disk: bool
    unknown: int


class Session(Record):
    """A job, or what holds a persistent instance."""

    id: Any
    state: str
    token: str
    lifetime: str
    written: bool
    ending: bool
    creator: str
    runner: str
    owner: dict[str, int]
    created: int
    hosts: list[str]
    mounted: bool
    waits_for: Optional[str]


class Instance(Record):
    """An instance."""

    id: Any
    state: str
    session: Any
    label: str
    pool: str
    capacity: int
    nodes: list[Any]
    intact: bool
    broken: Optional[str]
    public: bool
    modes: list[str]
    created: int
    expiry: Optional[Any]
    mount_generation: Optional[int]
    replaces: Optional[Any]
    #: Bytes in use, as its storage nodes have reported; None if none has.
    used: Optional[int] = None

    def row(self) -> dict[str, Any]:
        """Its numbers and texts, and `used`."""
        return {**super().row(), "used": self.used}


class Stage(Record):
    """A stage and its progress."""

    id: Any
    token: str
    direction: str
    line: int
    state: Any
    progress: Record
    stalled: bool
    nodes: list[Any]


class Usage(Record):
    """Bytes allocated to a user, a group or an account; `subject` is one of these."""

    subject: dict[str, Any]
    instances: int
    used: int
    quota: Optional[int]


class Status(Record):
    """The state of a pool."""

    pools: Table[Pool]
    nodes: Table[Node]
    sessions: Table[Session]
    stages: Table[Stage]
    usage: Table[Usage]
    account_usage: Table[Usage]
    activity: list[dict[str, Any]]
    process: Optional[int]

    @property
    def instances(self) -> Table[Instance]:
        """The instances, each with the bytes that it uses on all hosts that report."""
        stores = [host["store"] for host in self.activity or [] if host.get("store")]
        gauges = [store["gauges"] for store in stores if store.get("gauges")]
        used: dict[Any, int] = {}
        for one in (one for of in gauges for one in of["instances"]):
            used[one["spec"]["id"]] = used.get(one["spec"]["id"], 0) + one["used"]
        table = Table(Instance(one) for one in self.document["instances"])
        for instance in table:
            instance.used = used.get(instance.id)
        return table

    def _repr_html_(self) -> str:
        tables = (self.pools, self.nodes, self.instances, self.stages)
        return "".join(table._repr_html_() for table in tables if table)


class JobUsage(Record):
    """I/O of a job or a persistent instance, also after its end."""

    token: str
    lifetime: str
    owner: dict[str, int]
    instance: Optional[Any]
    capacity: int
    created: int
    ended: Optional[int]
    peak_used: int
    io: Record
    staged_in: Record
    staged_out: Record


class ClientSession(Record):
    """A session of a client on a storage node."""

    node: str
    session: int
    host: str
    kind: str
    user: int
    instance: int
    label: Optional[str]
    age_seconds: Optional[float]
    idle_seconds: float
    connections: int
    data_connections: int
    open_handles: int
    read_leases: int
    locks: bool
    read_bytes: int
    written_bytes: int


def _answer(words: list[str], **options: Any) -> Any:
    command = [*words, *_command.options({**options, "json": True})]
    return json.loads(_program.run(command).checked().stdout)


def status(pool: _Pool = None) -> Status:
    """The pool, its nodes, instances and stages: `forebay status`."""
    return Status(_answer(["status"], pool=pool))


def nodes(pool: _Pool = None) -> "Table[Node]":
    """The storage nodes."""
    return status(pool).nodes


def instances(pool: _Pool = None) -> "Table[Instance]":
    """The instances."""
    return status(pool).instances


def stages(pool: _Pool = None) -> "Table[Stage]":
    """The stages."""
    return status(pool).stages


def job(job: str, pool: _Pool = None) -> JobUsage:
    """The I/O of a job or persistent instance, also after its end: `forebay status --job`."""
    (usage,) = _answer(["status"], pool=pool, job=job)[-1:]
    return JobUsage(usage)


def jobs(pool: _Pool = None) -> "Table[JobUsage]":
    """The I/O of all jobs and persistent instances: `forebay admin usage --jobs`."""
    return Table(JobUsage(one) for one in _answer(["admin", "usage", "--jobs"], pool=pool))


def usage(pool: _Pool = None) -> "Table[Usage]":
    """The bytes allocated to users, groups and accounts: `forebay admin usage`."""
    return Table(Usage(one) for one in _answer(["admin", "usage"], pool=pool))


def sessions(
    pool: _Pool = None,
    *,
    host: Optional[str] = None,
    user: Union[str, int, None] = None,
    instance: Union[str, int, None] = None,
) -> "Table[ClientSession]":
    """The sessions of clients on the storage nodes: `forebay admin sessions`."""
    options = {"pool": pool, "host": host, "user": user, "instance": instance}
    return Table(ClientSession(one) for one in _answer(["admin", "sessions"], **options))
