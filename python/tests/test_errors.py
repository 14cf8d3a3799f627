"""Errors, interruptions, and the search for the program."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import forebay

from .support import ROOT, ProgramTest

PACKAGE = Path(forebay.__file__).resolve().parent


def wait_for(what, attempt):
    """The first true value of `attempt`, which is tried for a minute."""
    for _ in range(6000):
        found = attempt()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen")


def script(path, text):
    """A program that does what a shell script says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


class Errors(ProgramTest):
    def error_of(self, *arguments, **options):
        with self.assertRaises(forebay.Error) as caught:
            forebay.ior(*arguments, **options)
        return caught.exception

    def test_unknown_machine(self):
        error = self.error_of("-w", "toyy", 1)
        self.assertEqual(error.status, 2)
        self.assertTrue(str(error).startswith("toyy: unknown machine; expected `toy`"), error)
        self.assertEqual(error.command[1:3], ["sim", "ior"])
        self.assertEqual(self.stderr.getvalue(), "", "the message is in the exception")

    def test_mistyped_options_and_values(self):
        with self.assertRaises(TypeError):
            forebay.ior("-w", "toy", nodez=1)
        for options, word in (
            ({"set": {"burst_buffer.card_wrte": "1GB/s"}}, "card_wrte"),
            ({"set": {"burst_buffer.card_write": "1 furlong"}}, "furlong"),
            ({"routing": "straight"}, "no such routing algorithm"),
            ({"fidelity": "exact"}, "possible values: packet, flow, auto"),
            ({"sweep": {"nodes": []}}, None),
            ({"sweep": {"nodez": [1]}}, "--nodez"),
        ):
            if word is None:
                self.assertRaises(ValueError, forebay.ior, "-w", "toy", 1, **options)
                continue
            error = self.error_of("-w", "toy", 1, **options)
            self.assertEqual(error.status, 2)
            self.assertIn(word, str(error))
            self.assertNotIn("Usage", str(error))
        self.assertIn("option `-Q` cannot be `9x`", str(self.error_of("-Q9x", "toy", 1)))

    def test_missing_options(self):
        with self.assertRaisesRegex(forebay.Error, "--machine <NAME|FILE>") as caught:
            forebay.plan(nodes=1)
        self.assertNotIn("Usage", str(caught.exception))

    def test_existing_directory_is_left_alone(self):
        Path("there").mkdir()
        self.assertIn("exists already", str(self.error_of("-w", "toy", 1, out="there")))

    def test_help_of_ior_is_no_result(self):
        error = self.error_of("-h", "toy", 1)
        self.assertIn("interface: POSIX or MPIIO", str(error))

    def test_progress_passes_and_the_error_does_not(self):
        fake = script(self.directory / "fake", "echo half done >&2; echo 'error: a\n  b' >&2; exit 3")
        with mock.patch.dict(os.environ, FOREBAY=str(fake)), self.assertRaises(forebay.Error) as caught:
            forebay.version()
        self.assertEqual((str(caught.exception), caught.exception.status), ("a\n  b", 3))
        self.assertEqual(self.stderr.getvalue(), "half done\n")

    def test_program_reads_nothing(self):
        fake = script(self.directory / "fake", "read line && exit 1; echo forebay 7")
        variables = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "FOREBAY": str(fake)}
        command = [sys.executable, "-c", "import forebay; print(forebay.version())"]
        options = {"env": variables, "input": "a line\n", "stdout": subprocess.PIPE, "text": True}
        self.assertEqual(subprocess.run(command, check=True, **options).stdout, "7\n")

    def test_program_that_is_killed(self):
        fake = script(self.directory / "fake", "kill -9 $$")
        with mock.patch.dict(os.environ, FOREBAY=str(fake)), self.assertRaises(forebay.Error) as caught:
            forebay.version()
        self.assertEqual(caught.exception.status, -9)
        self.assertIn("SIGKILL", str(caught.exception))

    def test_a_result_shows_that_it_has_warnings_once(self):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("default")
            for _ in range(2):
                result = forebay.ior("-F -w -r -t 1m -b 2m", "toy", 1, fidelity="flow", no_out=True)
        (warning,) = shown
        self.assertTrue(issubclass(warning.category, forebay.ResultWarning))
        self.assertEqual(Path(warning.filename).name, "test_errors.py")
        self.assertGreater(len(result.warnings), 1)
        self.assertIn(result.warnings[0], str(warning.message))
        for text in result.warnings:
            self.assertIn(f"warning: {text}\n", result.table)


class Interruption(ProgramTest):
    # Python leaves SIGINT alone if it was ignored at its start, as in the background of a script.
    START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"

    def interrupted(self, code, ready):
        """Interrupts Python with a program when `ready` has a value, and returns its standard error.
        Fails if a process survives."""
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        command = [sys.executable, "-c", self.START + code]
        options = {"env": environment, "start_new_session": True, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **options) as process:
            try:
                wait_for("the simulation", lambda: process.poll() is not None or ready())
                self.assertIsNone(process.poll(), "it has ended too early")
                # To Python alone, as a notebook does; a terminal sends it to both.
                process.send_signal(signal.SIGINT)
                text = process.communicate(timeout=60)[1].decode()
            finally:
                is_left = self.kill_group(process.pid)
        self.assertFalse(is_left, "the program goes on")
        return text

    def kill_group(self, leader):
        """Kills all processes of a group, and returns whether there were any."""
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def test_interrupt_ends_the_program_and_leaves_nothing(self):
        code = "import forebay; forebay.traffic('toy', messages=100000000, quiet=True)"
        text = self.interrupted(code, lambda: any(Path("runs").glob(".*.partial-*")))
        self.assertIn("KeyboardInterrupt", text)
        self.assertFalse(Path("runs").exists())

    def test_program_that_ignores_the_interrupt_is_killed(self):
        fake = script(self.directory / "fake", "trap '' INT; touch started; exec sleep 1000")
        code = "import forebay._program as p; p._END_SECONDS = 0.1; p.run(['x'])"
        with mock.patch.dict(os.environ, FOREBAY=str(fake)):
            text = self.interrupted(code, Path("started").exists)
        self.assertIn("KeyboardInterrupt", text)


class Search(ProgramTest):
    CODE = """
import forebay, json, os, sys
for variables in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(variables)
    try:
        print(forebay.program())
    except forebay.ProgramNotFound as error:
        print(error)
"""

    def found(self, package, *environments):
        """The outcomes of `program()` of a copy of the package, with each environment."""
        command = [sys.executable, "-S", "-c", self.CODE, json.dumps(environments)]
        variables = {"PYTHONPATH": str(package.parent)}
        ended = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
        return ended.stdout.splitlines()

    def copy(self, place):
        package = self.directory / place / "forebay"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        return package

    def test_order(self):
        installed = self.copy("usr/lib/python3/dist-packages")
        other = script(self.directory / "else/forebay", "")
        in_path = {"PATH": str(other.parent)}
        nothing, by_path = self.found(installed, {"PATH": ""}, in_path)
        self.assertIn("neither beside this package nor in PATH", nothing)
        self.assertEqual(by_path, str(other))
        beside = script(self.directory / "usr/bin/forebay", "")
        environments = [in_path, {"PATH": "", "FOREBAY": str(other)}, {"FOREBAY": "/no/program"}]
        first, chosen, wrong = self.found(installed, *environments)
        self.assertEqual((first, chosen), (str(beside), str(other)))
        self.assertIn("FOREBAY=/no/program: no such program", wrong)

    def test_source_tree(self):
        package = self.copy("tree/python")
        (self.directory / "tree/Cargo.toml").touch()
        built = script(self.directory / "tree/target/dist/forebay", "")
        self.assertEqual(self.found(package, {"PATH": ""}), [str(built)])

    def test_missing_program_is_an_error(self):
        with mock.patch.dict(os.environ, FOREBAY="/no/program"):
            self.assertRaises(forebay.ProgramNotFound, forebay.machines)

    def test_version_is_that_of_the_workspace(self):
        workspace = (ROOT / "Cargo.toml").read_text()
        (version,) = re.findall(r'^version = "(.*)"$', workspace, re.MULTILINE)
        self.assertEqual(forebay.__version__, version)
        self.assertEqual(forebay.version(), version)
