"""Studies, plans and validations have the numbers of the program's documents."""

import json
from pathlib import Path

import forebay

from .support import ProgramTest, document, program, table_rows

STUDY = """
title = "two jobs"
machine = "toy"
seeds = 2
[[job]]
name = "checkpoint"
nodes = 2
ior = "-a POSIX -F -w -t 512k -b 1m"
[[job]]
name = "solver"
nodes = 4
traffic = { pattern = "uniform", message = "16KiB", load = 0.3, messages = 50 }
[[measure]]
name = "minimal routing"
routing = "minimal"
"""


class Studies(ProgramTest):
    def test_numbers_are_those_of_the_document_and_the_report(self):
        Path("study.toml").write_text(STUDY)
        result = forebay.study("study.toml", "runs")
        self.same_document(result, json.loads(Path("runs/summary.json").read_text()))
        rows = result.rows()
        self.assertEqual(len(rows), 2 * (2 + 2))
        measure = result.document["measures"][1]
        beside = measure["together"][0]["jobs"][1]
        row = next(row for row in rows if row["measure"] == measure["name"] and row["slowdown"])
        self.assertEqual(row["together"], "checkpoint + solver")
        last = rows[-1]
        self.assertEqual((last["job"], last["slowdown"]), ("solver", beside["slowdown"]["mean"]))
        self.assertEqual(last["slowdown_ci95"], beside["slowdown"]["half_width"])
        self.assertEqual(last["seconds"], beside["together"]["time"]["mean"])
        self.assertEqual(result.table, result.report.read_text())
        self.assertEqual(forebay.load("runs"), result)

    def test_a_study_that_is_wrong_is_an_error(self):
        Path("study.toml").write_text(STUDY.replace("minimal", "minimall"))
        with self.assertRaises(forebay.Error) as caught:
            forebay.study("study.toml", "runs")
        self.assertEqual(caught.exception.status, 2)


class Plans(ProgramTest):
    def test_numbers_are_those_of_the_document_and_the_table(self):
        result = forebay.plan(machine="toy", nodes=4, ppn=2, checkpoint="1GiB", interval="1h")
        words = ["plan", "--machine", "toy", "--nodes", "4", "--ppn", "2", "--checkpoint", "1GiB"]
        words += ["--interval", "1h"]
        self.same_document(result, json.loads(program(*words, "--json", "-")))
        self.assertEqual(result.table, program(*words))
        self.assertIn(f"Recommended: {result.directive}", result.table)
        _, lines = table_rows(result.table, "file system")
        rows = [row for row in result.rows() if not row["other_transfer"]]
        self.assertEqual([line[0] for line in lines], [row["file_system"] for row in rows])
        self.assertEqual(len(rows), len(result.configurations))
        self.assertEqual(len(result.rows()) - len(rows), len(result.transfers))

    def test_a_job_script(self):
        script = "#!/bin/sh\n#SBATCH --nodes=2\n#DW jobdw capacity=1GiB type=scratch access_mode=striped\n"
        Path("-job.sh").write_text(script)
        result = forebay.plan("-job.sh", "-F -w -t 1m -b 64m", machine="toy")
        self.assertEqual(result.nodes, 2)
        self.assertEqual(forebay.check("-job.sh").instance["requested"], "1 GiB")


class Validations(ProgramTest):
    def test_rows_that_miss_their_tolerance_are_a_result(self):
        result = forebay.validate(case="aries-latency-8B", set={"network.node.latency": "100ns"})
        self.assertFalse(result.all_met)
        self.assertEqual(result.altered, ["network.node.latency=100ns"])
        self.has_all_fields(result)
        self.assertEqual(result.document, json.loads((result.directory / "summary.json").read_text()))
        for row, of in zip(result.rows(), result.document["rows"]):
            self.assertEqual((row["row"], row["simulated"]), (of["row"], of["simulated"]))
        self.assertEqual(forebay.load(result.directory), result)

    def test_sensitivity(self):
        words = ["--case", "aries-latency-8B", "--sensitivity", "--trajectories", "0"]
        expected = document("validate", *words, "--parameter", "network.node.latency")
        options = {"sensitivity": True, "parameter": "network.node.latency", "trajectories": 0}
        result = forebay.validate(case="aries-latency-8B", no_out=True, **options)
        self.same_document(result, expected)
        numbers = [one["elasticity"] for row in expected["rows"] for one in row["sensitivities"]]
        self.assertEqual([row["elasticity"] for row in result.rows()], numbers)
        self.assertTrue(numbers)

    def test_unknown_case_is_an_error(self):
        with self.assertRaises(forebay.Error):
            forebay.validate(case="nothing", no_out=True)


class Machines(ProgramTest):
    def test_list_and_numbers(self):
        machines = forebay.machines()
        self.assertEqual([one.document for one in machines], json.loads(program("machine", "list", "--json")))
        self.has_all_fields(machines[0])
        heading, lines = table_rows(program("machine", "list"), "machine")
        self.assertEqual([one.machine for one in machines], [line[0] for line in lines])
        self.assertEqual([f"{one.compute:,}" for one in machines], [line[3] for line in lines])
        self.assertEqual(heading[4], "burst buffers")
        self.assertEqual([f"{one.burst_buffers:,}" for one in machines], [line[4] for line in lines])
        toy = forebay.machine("toy")
        self.assertEqual(toy.document, json.loads(program("machine", "show", "--json", "toy")))
        self.assertEqual(toy.network["groups"], machines[0].groups)
