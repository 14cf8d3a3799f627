"""Arguments of functions as words of a command line."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

#: Options that are repeated, with one value each time.
_REPEATED = ("set", "sweep", "case", "parameter")

#: Words of IOR's command line, as one string or one by one.
Words = Union[str, Sequence[object]]


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, os.PathLike))


def text(value: object) -> str:
    """A single value as the program reads it."""
    if isinstance(value, bool):
        raise TypeError(f"{value} is no value of an option")
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    return str(value)


def _swept(key: str, values: object) -> str:
    """`KEY=VALUES`; a string is given to the program as it is."""
    if not _is_list(values):
        return f"{key}={text(values)}"
    texts = [text(value) for value in values]  # type: ignore[attr-defined]
    if not texts:
        raise ValueError(f"sweep of {key}: no values")
    if any(";" in one for one in texts):
        raise ValueError(f"sweep of {key}: a value contains `;`")
    if not any("," in one for one in texts):
        return f"{key}={','.join(texts)}"
    if len(texts) == 1:
        raise ValueError(f"sweep of {key}: one value that contains commas; use the option instead")
    return f"{key}={';'.join(texts)}"


def _pairs(name: str, values: Mapping[Any, Any]) -> list[str]:
    if name == "sweep":
        return [_swept(str(key), of_key) for key, of_key in values.items()]
    return [f"{key}={text(value)}" for key, value in values.items()]


def option(name: str, value: Any) -> list[str]:
    """The words of one option: `traffic_nodes` is `--traffic-nodes`; None and False are no option."""
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Mapping):
        if name not in ("set", "sweep"):
            raise TypeError(f"{name}: a mapping is no value of this option")
        values = _pairs(name, value)
    elif name in _REPEATED:
        values = [text(one) for one in value] if _is_list(value) else [text(value)]
    elif _is_list(value):
        values = [",".join(text(one) for one in value)]
    else:
        values = [text(value)]
    return [f"{flag}={one}" for one in values]


def options(values: Mapping[str, Any]) -> list[str]:
    """The words of several options."""
    return [word for name, value in values.items() for word in option(name, value)]


def path(value: Any) -> str:
    """A path as an argument, which is never taken for an option."""
    name = os.fsdecode(value)
    return f"./{name}" if name.startswith("-") else name


def ior_words(test: Words) -> list[str]:
    """IOR's options after `--`. A string is split as a shell would, without expanding anything."""
    words = shlex.split(test) if isinstance(test, str) else [text(word) for word in test]
    return ["--", *words] if words else []


def given(arguments: dict[str, Any], *others: str) -> dict[str, Any]:
    """The options among the arguments of a function: all but the `others`."""
    return {name: value for name, value in arguments.items() if name not in others}
