"""Objects of result documents as Python objects, and tables of them."""

import typing
from collections.abc import Iterator
from html import escape
from typing import Any, Optional, TypeVar, Union

#: Rows that a notebook shows of a table.
_SHOWN_ROWS = 60

_Self = TypeVar("_Self", bound="Record")


class Rows(list[dict[str, Any]]):
    """Rows of a table, as dictionaries with the same keys."""

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`; needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from error
        return pandas.DataFrame(list(self), columns=self.columns())

    def columns(self) -> list[str]:
        """The names of the columns."""
        names: dict[str, None] = {}
        for row in self:
            names.update(dict.fromkeys(row))
        return list(names)

    def _repr_html_(self) -> str:
        # Without columns that have no value.
        names = [name for name in self.columns() if any(row.get(name) is not None for row in self)]
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell(row.get(name)))}</td>" for name in names) + "</tr>"
            for row in self[:_SHOWN_ROWS]
        )
        more = len(self) - _SHOWN_ROWS
        rest = f"<p>{more} more rows</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def cell(value: Any) -> str:
    """A value as a table shows it, floats with four digits."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


T = TypeVar("T", bound="Record")


class Table(list[T]):
    """A list of records, which is also a table."""

    def rows(self) -> Rows:
        """One row a record: its numbers and texts, and those of records in it (`latency_ns_mean`)."""
        rows = [record.row() for record in self]
        names: dict[str, None] = {}
        for row in rows:
            names.update(dict.fromkeys(row))
        return Rows({name: row.get(name) for name in names} for row in rows)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the rows; needs pandas."""
        return self.rows().to_pandas()

    def _repr_html_(self) -> str:
        return self.rows()._repr_html_()


def _without_none(hint: Any) -> tuple[Any, bool]:
    """The type in `Optional[type]`, and whether it was one."""
    if typing.get_origin(hint) is Union:
        others = [one for one in typing.get_args(hint) if one is not type(None)]
        if len(others) == 1:
            return others[0], True
    return hint, False


def _record_type(hint: Any) -> "Optional[type[Record]]":
    return hint if isinstance(hint, type) and issubclass(hint, Record) else None


def _converted(value: Any, hint: Any) -> Any:
    """A value of a document as its hint says."""
    hint, _ = _without_none(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    record = _record_type(hint)
    if record is not None and isinstance(value, dict):
        return record(value)
    if origin is Table and isinstance(value, list):
        return Table(arguments[0](one) for one in value)
    return value


class Record:
    """An object of a document, with its fields as attributes.

    The fields of the class are those that the documentation has; further ones, of a newer version of
    the program, are attributes, too. A field that an older version did not write is None, or an empty
    table.
    """

    #: The object as it was read.
    document: dict[str, Any]

    def __init__(self, document: dict[str, Any]):
        self.__dict__["document"] = document

    @classmethod
    def _fields(cls) -> dict[str, Any]:
        """The type of each field."""
        found = cls.__dict__.get("_cached_fields")
        if found is None:
            hints = typing.get_type_hints(cls)
            found = {name: hint for name, hint in hints.items() if not hasattr(cls, name)}
            found.pop("document", None)
            cls._cached_fields = found  # type: ignore[attr-defined]
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "document" not in self.__dict__:
            raise AttributeError(name)
        hint = self._fields().get(name)
        if name in self.document:
            value = _converted(self.document[name], hint)
        elif hint is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        elif typing.get_origin(hint) is Table:
            value = Table()
        else:
            value = None
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields(), *self.document})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.document == other.document

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._scalars() if value is not None)
        return f"{type(self).__name__}({shown})"

    def _scalars(self) -> Iterator[tuple[str, Any]]:
        for name, value in self.document.items():
            if not isinstance(value, (dict, list)):
                yield name, value

    def row(self) -> dict[str, Any]:
        """Numbers and texts, also those of records in it, whose names follow after `_`."""
        row: dict[str, Any] = {}
        for name, value in self.document.items():
            if isinstance(value, dict):
                row.update({f"{name}_{inner}": v for inner, v in Record(value)._scalars()})
            elif not isinstance(value, list):
                row[name] = value
            elif value and all(isinstance(one, str) for one in value) and name not in _LONG:
                row[name] = ", ".join(value)
        return row

    def _repr_html_(self) -> str:
        return Table([self])._repr_html_()


class TableRecord(Record):
    """An object of a document that is a table, but no list of records."""

    def rows(self) -> Rows:
        """The rows of the table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the rows; needs pandas."""
        return self.rows().to_pandas()

    def _repr_html_(self) -> str:
        return self.rows()._repr_html_()


#: Lists of sentences, which no table has.
_LONG = ("warnings", "left_out", "remarks")
