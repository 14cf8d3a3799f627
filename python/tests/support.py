"""What the tests share: a directory for each, the program without the package, comparisons."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import typing
import unittest
import warnings
from pathlib import Path

import forebay
from forebay._record import Record, Table

ROOT = Path(__file__).resolve().parents[2]

#: A Darshan log of four processes, and a trace of jobs.
LOG = ROOT / "crates/core/darshan-log/tests/data/ior-hdf5-dxt.darshan"
TRACE = ROOT / "examples/jobs.json"

#: Numbers about the simulator itself, which differ from run to run.
OF_THE_SIMULATOR = ("wall_seconds", "startup_seconds", "packets_per_second", "threads", "peak_rss_bytes")

#: Fields that have other names in Python (docs/python.md), by class.
RENAMED = {
    "LinkClass": {"class": "name"},
    "Comparison": {"row": "row_id"},
    "SensitiveRow": {"row": "row_id"},
    "PlanResult": {"warnings": "log_warnings"},
    "ValidationResult": {"rows": "comparisons"},
    "SensitivityResult": {"rows": "measurements"},
}


def program(*words):
    """The standard output of the program, run without the package."""
    ended = subprocess.run([forebay.program(), *words], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise AssertionError(f"{words}: {ended.stderr}")
    return ended.stdout


def document(*words):
    """The result document of a command."""
    command = [*words]
    end = command.index("--") if "--" in command else len(command)
    return json.loads(program(*command[:end], "--no-out", "--json", "-", *command[end:]))


def without_simulator(value):
    """A document without the fields about the simulator itself."""
    if isinstance(value, dict):
        return {k: without_simulator(v) for k, v in value.items() if k not in OF_THE_SIMULATOR}
    return [without_simulator(one) for one in value] if isinstance(value, list) else value


def table_rows(text, first):
    """The cells of a printed table whose heading begins with `first`, until an empty or other line."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.strip().startswith(first))
    rows = [re.split(r" {2,}", line.strip()) for line in lines[start:]]
    end = next((n for n, row in enumerate(rows) if len(row) != len(rows[0])), len(rows))
    return rows[0], rows[1:end]


def shows(cell, value):
    """Whether the text of a cell is that of a number or text."""
    if value is None:
        return cell == "-"
    if isinstance(value, str):
        return cell == value
    decimals = len(cell.partition(".")[2])
    return abs(float(cell.replace(",", "")) - value) <= 0.5 * 10**-decimals * (1 + 1e-9)


class ProgramTest(unittest.TestCase):
    """Tests in a directory of their own, with what the program prints on standard error in `stderr`."""

    def setUp(self):
        self.directory = Path(tempfile.mkdtemp(prefix="forebay-test-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        self.stderr = io.StringIO()
        redirected = contextlib.redirect_stderr(self.stderr)
        redirected.__enter__()
        self.addCleanup(redirected.__exit__, None, None, None)
        shown = warnings.catch_warnings(record=True)
        self.shown = shown.__enter__()
        warnings.simplefilter("always")
        self.addCleanup(shown.__exit__, None, None, None)

    def same_document(self, result, expected):
        """The result has each value of the document that the program writes."""
        self.assertEqual(without_simulator(result.document), without_simulator(expected))
        self.has_all_fields(result)

    def has_all_fields(self, record):
        """Each field of a record is an attribute of the declared type, with the value of the document."""
        names = RENAMED.get(type(record).__name__, {})
        fields = record._fields()
        for key, value in record.document.items():
            name = names.get(key, key)
            attribute = getattr(record, name)
            declared = name in fields or isinstance(getattr(type(record), name, None), property)
            self.assertTrue(declared, f"{type(record).__name__} does not declare {name}")
            if name in fields:
                self.is_of_type(attribute, fields[name], f"{type(record).__name__}.{name}")
            self.same_value(attribute, value)

    def same_value(self, attribute, value):
        if isinstance(attribute, Record):
            self.assertEqual(attribute.document, value)
            if type(attribute) is not Record:
                self.has_all_fields(attribute)
        elif isinstance(attribute, Table):
            self.assertEqual(len(attribute), len(value))
            for one, of in zip(attribute, value):
                self.same_value(one, of)
        elif isinstance(value, list) and isinstance(attribute, dict):
            self.assertEqual(list(attribute.items()), [tuple(pair) for pair in value])
        else:
            self.assertEqual(attribute, value)

    def is_of_type(self, value, hint, what):
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is typing.Any:
            return
        if origin is typing.Union:
            if value is not None:
                self.is_of_type(value, next(one for one in arguments if one is not type(None)), what)
        elif origin in (list, Table):
            self.assertIsInstance(value, origin, what)
            for one in value:
                self.is_of_type(one, arguments[0], what)
        elif origin is dict:
            self.assertIsInstance(value, dict, what)
        elif hint is float:
            self.assertIsInstance(value, (int, float), what)
        else:
            self.assertIsInstance(value, hint, what)
