"""Arguments of functions are the options of the program, and the package needs Python 3.9 only."""

import ast
import inspect
import re
import unittest
from pathlib import Path

import forebay
from forebay import _command

from .support import ROOT, program

#: Options of all commands, and those that a function makes itself.
NOT_ARGUMENTS = {"help", "json", "log-format", "log-file"}


def options_of(*command):
    """The options in a command's help."""
    text = re.split(r"\n(?:Examples?:|Logs:\n)", program(*command, "--help"))[0]
    return set(re.findall(r"^ +(?:-[a-z], )?--([a-z][a-z-]*)(?: [<\[]|=|\[|$)", text, re.MULTILINE))


class Options(unittest.TestCase):
    def test_each_function_has_the_options_of_its_command(self):
        for function, command, others in (
            (forebay.ior, ["sim", "ior"], {"test"}),
            (forebay.darshan, ["sim", "darshan"], {"log"}),
            (forebay.traffic, ["sim", "traffic"], set()),
            (forebay.interference, ["sim", "interference"], {"test"}),
            (forebay.collective, ["sim", "collective"], {"operation", "test"}),
            (forebay.jobs, ["sim", "jobs"], {"traces"}),
            (forebay.study, ["study"], {"file"}),
            (forebay.plan, ["plan"], {"script", "test"}),
            (forebay.validate, ["validate"], set()),
            (forebay.check, ["check"], {"script"}),
            (forebay.pool.sessions, ["admin", "sessions"], set()),
        ):
            names = set(inspect.signature(function).parameters) - others
            options = options_of(*command) - NOT_ARGUMENTS - {"ior-output"}
            self.assertEqual({name.replace("_", "-") for name in names}, options, function.__name__)

    def test_words(self):
        for name, value, words in (
            ("traffic_nodes", 8, ["--traffic-nodes=8"]),
            ("nodes", [1, 2], ["--nodes=1,2"]),
            ("nodes", range(1, 4), ["--nodes=1,2,3"]),
            ("load", 0.25, ["--load=0.25"]),
            ("delays", True, ["--delays"]),
            ("delays", False, []),
            ("seed", None, []),
            ("seed", 0, ["--seed=0"]),
            ("out", Path("a b"), ["--out=a b"]),
            ("case", ["a", "b"], ["--case=a", "--case=b"]),
            ("case", "a", ["--case=a"]),
            ("set", {"a.b": "1GB/s", "c": 2}, ["--set=a.b=1GB/s", "--set=c=2"]),
            ("set", ["a=1"], ["--set=a=1"]),
            (
                "sweep",
                {"nodes": [1, 2], "load": "0.1..0.9+0.1"},
                ["--sweep=nodes=1,2", "--sweep=load=0.1..0.9+0.1"],
            ),
            ("sweep", {"pattern": ["a", "b:x=1,y=2"]}, ["--sweep=pattern=a;b:x=1,y=2"]),
        ):
            self.assertEqual(_command.option(name, value), words)
        self.assertEqual(_command.ior_words("-o 'a b' $HOME"), ["--", "-o", "a b", "$HOME"])
        self.assertEqual(_command.ior_words(""), [])
        self.assertEqual(_command.path("-x"), "./-x")
        self.assertRaises(TypeError, _command.option, "nodes", {"a": 1})
        self.assertRaises(ValueError, _command.option, "sweep", {"pattern": ["b:x=1,y=2"]})
        self.assertRaises(ValueError, _command.option, "sweep", {"pattern": ["a;b", "c"]})


class Language(unittest.TestCase):
    def test_syntax_of_python_3_9(self):
        sources = [*ROOT.glob("python/forebay/*.py"), *ROOT.glob("examples/*.py")]
        for source in sources:
            ast.parse(source.read_text(), str(source), feature_version=(3, 9))
        self.assertGreater(len(sources), 10)
