"""Results of simulations have the numbers of the program's documents and tables."""

import csv
import json
from pathlib import Path

import forebay

from .support import LOG, TRACE, ProgramTest, document, shows, table_rows

IOR = ["-a", "POSIX", "-F", "-w", "-r", "-t", "256k", "-b", "4m"]
SET = {"burst_buffer.card_write": "1GB/s"}
SET_WORDS = ["--set", "burst_buffer.card_write=1GB/s"]


class Ior(ProgramTest):
    def test_numbers_are_those_of_document_and_table_with_both_fidelities(self):
        for fidelity in ("flow", "packet"):
            result = forebay.ior(" ".join(IOR), "toy", [1, 2], fidelity=fidelity, set=SET)
            words = ["--machine", "toy", "--nodes", "1,2", "--fidelity", fidelity, *SET_WORDS]
            self.same_document(result, document("sim", "ior", *words, "--", *IOR))
            heading, lines = table_rows(result.table, "nodes  processes")
            self.assertEqual(len(lines), 2)
            for line, row, point in zip(lines, result.rows(), result.points):
                per_node, acknowledged = line[6:8]
                best = max(point.write_GBps, point.read_GBps)
                expected = [row[name] for name in ("nodes", "processes")]
                expected += [row["write_GBps"], row["write_steady_GBps"]]
                expected += [row["read_GBps"], row["read_steady_GBps"]]
                for cell, value in zip(line[:6] + line[8:], [*expected, row["limit"]]):
                    self.assertTrue(shows(cell, value), f"{line} {row}")
                rates = (point.write_GBps / point.nodes, point.read_GBps / point.nodes)
                self.assertTrue(any(shows(per_node, rate) for rate in rates), (line, best))
                rates = (point.write_acknowledged_node_GBps, point.read_acknowledged_node_GBps)
                self.assertTrue(any(shows(acknowledged, rate) for rate in rates), line)
            self.assertEqual(heading[-1], "limit")

    def test_files_of_the_run_directory(self):
        result = forebay.ior(IOR, "toy", 1, fidelity="packet", links=True, delays=False)
        self.assertEqual(result.directory, self.directory / "runs/ior-toy-1")
        self.assertEqual(json.loads((result.directory / "summary.json").read_text()), result.document)
        self.assertEqual(result.report.name, "report.html")
        self.assertEqual(result.picture.read_bytes()[:4], b"\x89PNG")
        self.assertEqual(result.inputs["settings"]["fidelity"], "packet")
        self.assertIn("Max Write", result.ior_output(1))
        self.assertTrue(result.file("links.csv"))
        self.assertIsNone(result.file("no.csv"))

    def test_without_a_run_directory(self):
        result = forebay.ior(IOR, "toy", 1, fidelity="flow", no_out=True)
        self.assertEqual([result.directory, result.report, result.picture], [None, None, None])
        self.assertFalse(Path("runs").exists())
        self.assertIn("limit", result.table)
        self.assertNotIn("JSON", result.table)

    def test_observations(self):
        result = forebay.ior(IOR, "toy", 2, delays=True, series=True, out="observed")
        self.assertEqual(result.directory, self.directory / "observed")
        delays = result.points[0].delays
        with open("observed/delays.csv", newline="") as file:
            network = [row for row in csv.DictReader(file) if not row["place"].startswith("server")]
        self.assertEqual(
            [float(row["seconds"]) for row in network], [row["seconds"] for row in delays.rows()]
        )
        series = result.points[0].best("write").series
        self.assertEqual([row["seconds"] for row in series.rows()], series.seconds)
        name, values = series.document["columns"][0]
        self.assertEqual([row[name] for row in series.rows()], values)

    def test_means_of_several_seeds(self):
        result = forebay.ior(IOR, "toy", 2, placement="random-nodes", fidelity="flow", seeds=3)
        estimate = result.points[0].replication.estimate("write_GBps")
        row = result.rows()[0]
        self.assertEqual((row["write_GBps"], row["write_GBps_ci95"]), (estimate.mean, estimate.half_width))
        self.assertEqual(len(estimate.values), 3)

    def test_the_log_of_mpi_io(self):
        test = "-a MPIIO -w -t 64k -b 64k -s 32"
        result = forebay.ior(test, "toy", 2, fidelity="flow", log="close")
        words = ["--machine", "toy", "--nodes", "2", "--fidelity", "flow", "--log", "close"]
        self.same_document(result, document("sim", "ior", *words, "--", *test.split()))
        self.assertEqual(result.rows()[0]["log_gain"], result.points[0].logged.gain)

    def test_a_script_of_several_tests(self):
        script = "IOR START\nfilePerProc=1\nwriteFile=1\nblockSize=2m\nRUN\ntransferSize=1m\nRUN\nIOR STOP\n"
        Path("two.ior").write_text(script)
        result = forebay.ior(["-f", "two.ior"], "toy", [1, 2], fidelity="flow")
        self.assertIsInstance(result, forebay.IorResults)
        self.assertEqual([row["test"] for row in result.rows()], [0, 0, 1, 1])
        self.assertEqual([row["nodes"] for row in result.rows()], [1, 2, 1, 2])
        self.assertTrue(all(one.report.is_file() for one in result), result.directory)
        self.assertEqual(
            [one.document for one in forebay.load(result.directory)], [one.document for one in result]
        )

    def test_iors_words_reach_the_program_without_a_shell(self):
        name = "$(touch made) a;b"
        result = forebay.ior(["-w", "-b", "1m", "-o", name], "toy", 1, fidelity="flow", no_out=True)
        self.assertEqual(result.ior[-1], name)
        result = forebay.ior(f"-w -b 1m -o '{name}'", "toy", 1, fidelity="flow", no_out=True)
        self.assertEqual(result.ior[-1], name)
        self.assertEqual(list(Path().iterdir()), [])


class Darshan(ProgramTest):
    def test_numbers_are_those_of_the_document_and_the_table(self):
        result = forebay.darshan(LOG, "toy", fidelity="flow", seeds=2, quiet=True)
        words = [str(LOG), "--machine", "toy", "--fidelity", "flow", "--seeds", "2"]
        self.same_document(result, document("sim", "darshan", *words))
        self.assertEqual(result.directory, self.directory / "runs/darshan-toy-1")
        self.assertEqual(forebay.load(result.directory), result)
        heading, lines = table_rows(result.table, "phase  files")
        self.assertEqual(heading[-1], "limit")
        self.assertEqual(
            [(line[0], line[-1]) for line in lines], [(row["access"], row["limit"]) for row in result.rows()]
        )
        self.assertEqual(len(lines), sum(1 for phase in result.phases if phase.parts))
        mean = result.replication.estimate("slowest_rank_seconds").mean
        self.assertAlmostEqual(mean, result.slowest_rank_seconds, delta=mean / 2)
        for text in result.warnings:
            self.assertIn(f"warning: {text}\n", result.table)

    def test_a_sweep(self):
        sweep = {"burst-buffers": [1, 2]}
        result = forebay.darshan(LOG, "toy", fidelity="flow", sweep=sweep, no_out=True)
        self.assertEqual([row["burst-buffers"] for row in result.rows()], [1, 2])
        self.assertTrue(all(row["slowest_rank_seconds"] for row in result.rows()))


class Jobs(ProgramTest):
    OPTIONS = {"nodes": 8, "storage_nodes": 2, "granularity": "1GB", "policy": ["easy", "easy-bb"]}
    WORDS = ["--nodes=8", "--storage-nodes=2", "--granularity=1GB", "--policy=easy,easy-bb"]

    def test_numbers_are_those_of_the_document(self):
        result = forebay.jobs(TRACE, capacity="40GB", pfs_rate="300MB/s", **self.OPTIONS)
        words = [str(TRACE), *self.WORDS, "--capacity=40GB", "--pfs-rate=300MB/s"]
        self.same_document(result, document("sim", "jobs", *words))
        self.assertIsNone(result.machine)
        rows = {row["policy"]: row for row in result.rows()}
        self.assertEqual(list(rows), ["easy", "easy-bb"])
        with open(result.file("jobs.csv"), newline="") as file:
            of_easy = [row for row in csv.DictReader(file) if row["policy"] == "easy"]
        waits = [float(row["wait_seconds"]) for row in of_easy]
        self.assertAlmostEqual(rows["easy"]["mean_wait_seconds"], sum(waits) / len(waits))
        self.assertEqual(result.points[0].policy("easy").jobs, len(waits))
        self.assertEqual(forebay.load(result.directory), result)

    def test_several_traces_and_a_sweep(self):
        Path("-other.json").write_bytes(TRACE.read_bytes())
        sweep = {"nodes": [8, 16], "capacity": "40GB..80GB"}
        result = forebay.jobs([TRACE, "-other.json"], sweep=sweep, no_out=True, **self.OPTIONS)
        self.assertIsNone(result.directory)
        self.assertEqual([trace.file for trace in result.traces], [str(TRACE), "./-other.json"])
        place = [(row["nodes"], row["capacity"], row["policy"]) for row in result.rows()]
        self.assertEqual(place[:3], [(8, "40GB", "easy"), (8, "40GB", "easy-bb"), (8, "80GB", "easy")])
        self.assertEqual(len(place), 2 * 2 * 2)
        self.assertEqual([len(one.each_trace) for one in result.points[0].policies], [2, 2])


class Sweeps(ProgramTest):
    def test_rows_are_those_of_the_file(self):
        sweep = {"nodes": "1..4", "burst_buffer.threads": [1, 8], "ior.t": ["512k", "1m"]}
        result = forebay.ior("-F -w -b 8m", "toy", 1, fidelity="flow", seeds=2, sweep=sweep)
        with open(result.directory / "sweep.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        rows = result.rows()
        self.assertEqual(rows.columns(), list(lines[0]))
        self.assertEqual(len(rows), 12)
        for row, line in zip(rows, lines):
            for name, value in row.items():
                text = line[name]
                self.assertEqual(value, text if isinstance(value, str) else type(value)(text), name)
        self.assertEqual([row["ior.t"] for row in rows[:2]], ["512k", "1m"])
        self.assertEqual(result.points[0].value("write_GBps"), rows[0]["write_GBps"])
        self.has_all_fields(result)

    def test_values_that_contain_commas(self):
        patterns = ["uniform", "hot-spot:nodes=2,share=0.2"]
        result = forebay.traffic("toy", messages=20, sweep={"pattern": patterns}, no_out=True)
        self.assertEqual([row["pattern"] for row in result.rows()], patterns)


class Traffic(ProgramTest):
    def test_numbers_are_those_of_the_document(self):
        result = forebay.traffic("toy", load=0.2, messages=40, message="8KiB", delays=True)
        words = ["--machine", "toy", "--load", "0.2", "--messages", "40", "--message", "8KiB", "--delays"]
        self.same_document(result, document("sim", "traffic", *words))
        (row,) = result.rows()
        self.assertEqual(row["latency_p99"], result.document["latency_ns"]["p99"])
        self.assertEqual(row["accepted_load"], result.document["accepted_load"])

    def test_the_search_for_saturation(self):
        result = forebay.traffic("toy", load="saturation", messages=20, fidelity="flow")
        words = ["--machine", "toy", "--load", "saturation", "--messages", "20", "--fidelity", "flow"]
        self.same_document(result, document("sim", "traffic", *words))
        steps = result.document["saturation"]["steps"]
        self.assertEqual(
            [step.offered_load for step in result.saturation.steps], [s["offered_load"] for s in steps]
        )


class Interference(ProgramTest):
    def test_numbers_are_those_of_the_document(self):
        result = forebay.interference("-F -w -t 256k -b 2m", "toy", 2, 4, load=0.5, delays=True)
        words = ["--machine", "toy", "--nodes", "2", "--traffic-nodes", "4", "--load", "0.5", "--delays"]
        ior = ["--", "-F", "-w", "-t", "256k", "-b", "2m"]
        self.same_document(result, document("sim", "interference", *words, *ior))
        rows = {(row["job"], row["when"]): row for row in result.rows()}
        self.assertEqual(rows["ior", "together"]["write_GBps"], result.document["ior_together"]["write_GBps"])
        latency = result.document["traffic_alone"]["latency_ns"]["mean"]
        self.assertEqual(rows["traffic", "alone"]["latency_mean"], latency)


class Collective(ProgramTest):
    def test_numbers_are_those_of_the_document(self):
        options = {"size": "1KiB", "iterations": 5, "traffic_nodes": 8, "load": 0.4}
        result = forebay.collective("allreduce", "toy", 8, **options)
        words = ["allreduce", "--machine", "toy", "--nodes", "8", "--size", "1KiB", "--iterations", "5"]
        words += ["--traffic-nodes", "8", "--load", "0.4"]
        self.same_document(result, document("sim", "collective", *words))
        self.assertEqual([row["when"] for row in result.rows()], ["alone", "together"])
        self.assertEqual(result.rows()[1]["p99_seconds"], result.document["together"]["p99_seconds"])

    def test_ior_beside_it(self):
        result = forebay.collective("barrier", "toy", 2, test="-F -w -b 2m", iterations=2, ior_nodes=2)
        self.assertEqual(result.ior_together.nodes, 2)
