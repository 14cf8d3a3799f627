"""The examples run."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

from .support import ROOT, ProgramTest


class Documentation(ProgramTest):
    def test_examples_of_the_manual(self):
        text = (ROOT / "docs/python.md").read_text()
        examples = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(examples), 2)
        names = {}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            for example in examples:
                exec(compile(example, "docs/python.md", "exec"), names)
        self.assertIn("#DW jobdw capacity=", printed.getvalue())
        self.assertTrue(names["result"].report.is_file())

    def test_the_manual_names_each_function(self):
        import forebay

        text = (ROOT / "docs/python.md").read_text()
        for name in forebay.__all__:
            if name.islower() and name not in ("version", "__version__"):
                self.assertRegex(text, rf"`(forebay\.)?{name}[(.]", name)

    def test_example_of_a_sweep(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        command = [sys.executable, ROOT / "examples/threads.py", "toy", "."]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        text = subprocess.run(command, env=environment, check=True, text=True, **pipes).stdout
        self.assertRegex(text, r"(?m)^ +8  +\d+\.\d\d GB/s  +\d+\.\d\d GB/s  +\d+\.\d\d GB/s$")
        self.assertIn("the limit is: server", text)
        self.assertEqual(Path("threads.png").read_bytes()[:4], b"\x89PNG")
