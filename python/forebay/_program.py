"""The `forebay` program: where it is, and how it is run."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

#: Seconds in which an interrupted program removes its unfinished files, before it is killed.
_END_SECONDS = 10


class Error(Exception):
    """A failure of the program, or a file that is no result of it.

    `str(error)` is the program's message. `status` is its exit status (2: invalid input, 1: failed,
    negative: ended by that signal), or None if it did not run; `command` has the words of the command.
    """

    def __init__(self, message: str, status: Optional[int] = None, command: Sequence[str] = ()):
        super().__init__(message)
        self.status = status
        self.command = list(command)


class ProgramNotFound(Error):
    """The program is not installed, or `FOREBAY` names no program."""


class Finished(NamedTuple):
    """A program that has ended."""

    command: list[str]
    status: int
    stdout: str
    #: Its error message without `error: `; empty if it has printed none.
    error: str

    def checked(self) -> "Finished":
        """Raises its error unless its status is 0."""
        if self.status != 0:
            raise Error(self.error or _ended(self.status), self.status, self.command)
        return self


def _ended(status: int) -> str:
    if status >= 0:
        return f"forebay ended with status {status}"
    return f"forebay was ended by the signal {signal.Signals(-status).name}"


def _beside_the_package() -> Iterator[Path]:
    """The program of the same source tree or of the same installation."""
    here = Path(__file__).resolve().parent
    if len(here.parents) > 1 and (here.parents[1] / "Cargo.toml").is_file():
        yield here.parents[1] / "target/dist/forebay"
        yield here.parents[1] / "target/release/forebay"
    for directory in here.parents:
        yield directory / "bin/forebay"


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def program() -> str:
    """The path of the program that functions of this package run.

    It is that of the environment variable `FOREBAY`; else the one beside this package: built in the
    same source tree, or in `bin` of the same installation; else `forebay` of `PATH`.
    """
    chosen = os.environ.get("FOREBAY")
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            raise ProgramNotFound(f"FOREBAY={chosen}: no such program; set it to the path of `forebay`")
        return found
    for path in _beside_the_package():
        if _is_program(path):
            return str(path)
    found = shutil.which("forebay")
    if found is None:
        raise ProgramNotFound(
            "the program `forebay` is neither beside this package nor in PATH; install it, or set the "
            "environment variable FOREBAY to its path"
        )
    return found


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupts the program, which then removes its unfinished files, and waits for its end."""
    try:
        process.send_signal(signal.SIGINT)
        process.wait(_END_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _message(lines: list[str]) -> str:
    """The message in the lines of an error, without the usage that follows that of an option."""
    text = "".join(lines)[len("error:") :]
    return text.split("\n\nUsage:")[0].split("\n\nFor more information")[0].strip()


def run(words: Sequence[str]) -> Finished:
    """Runs the program with these arguments until it ends.

    What it prints on standard error is written to `sys.stderr` as it comes, except for its error
    message. `KeyboardInterrupt`, and every other exception, ends the program.
    """
    command = [program(), *words]
    with tempfile.TemporaryFile() as stdout:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)
        error: list[str] = []
        assert process.stderr is not None
        with process.stderr as lines:
            try:
                for line in lines:
                    text = line.decode("utf-8", "replace")
                    if error or text.startswith("error:"):
                        error.append(text)
                    else:
                        _write(text)
                status = process.wait()
            except BaseException:
                _end(process)
                raise
        stdout.seek(0)
        output = stdout.read().decode("utf-8", "replace")
    if status == 0 and error:
        _write("".join(error))
    return Finished(command, status, output, _message(error) if error else "")


def _write(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def version() -> str:
    """The version of the program."""
    return run(["--version"]).checked().stdout.split()[-1]
