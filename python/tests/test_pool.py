"""Pools and logs: the answers are those of the program's commands."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import forebay
from forebay import pool

from .support import ProgramTest, program, table_rows
from .test_errors import wait_for

JOB = """#!/bin/sh
#DW jobdw capacity=32MiB type=scratch access_mode=striped
#DW stage_in type=file source=%d/input destination=$DW_JOB_STRIPED/input
head -c 8388608 /dev/zero >${DW_JOB_STRIPED}data
touch ready
while [ ! -e go ]; do sleep 0.02; done
"""


def start(directory):
    """Starts the job, in an embedded pool `pool` with a persistent instance, which runs until `go` exists."""
    (directory / "input").write_text("input")
    (directory / "job.sh").write_text(JOB)
    made = ["create-persistent", "tables", "--capacity", "32MiB", "--pool-size", "256MiB"]
    program(*made, "--pool", directory / "pool")
    command = [forebay.program(), "run", "--pool", "pool", "--job-id", "j1", "job.sh"]
    return subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE)


class RunningPool(ProgramTest):
    """A pool with a job that runs, for all tests."""

    @classmethod
    def setUpClass(cls):
        cls.place = Path(tempfile.mkdtemp(prefix="forebay-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.place)
        cls.job = start(cls.place)
        cls.addClassCleanup(cls.job.communicate)
        cls.addClassCleanup((cls.place / "go").touch)
        wait_for("the job", lambda: cls.job.poll() is not None or (cls.place / "ready").exists())

    def setUp(self):
        super().setUp()
        os.chdir(self.place)
        self.assertIsNone(self.job.poll())

    def test_answers_are_those_of_the_commands(self):
        status = pool.status("pool")
        text = program("status", "--pool", "pool")
        self.assertEqual(status.process, self.job.pid)
        (embedded,) = status.pools
        self.assertEqual(embedded.quantity * embedded.granularity, 256 << 20)
        self.assertEqual((embedded.quantity - embedded.free) * embedded.granularity, 64 << 20)
        self.assertEqual([(one.name, one.online) for one in pool.nodes("pool")], [("embedded", True)])
        instances = {one.label: one for one in pool.instances("pool")}
        self.assertEqual(sorted(instances), ["j1", "tables"])
        self.assertEqual(instances["j1"].capacity, 32 << 20)
        self.assertEqual(instances["j1"].modes, ["striped"])
        heading, lines = table_rows(text, "instance")
        self.assertEqual(sorted(line[0] for line in lines), sorted(instances), heading)
        (stage,) = pool.stages("pool")
        self.assertEqual((stage.direction, stage.state, stage.progress.files), ("in", "done", 1))
        self.assertEqual(stage.progress.bytes, 5)
        self.has_all_fields(embedded)
        for table in (status.nodes, status.instances, status.sessions, status.stages, status.usage):
            for record in table:
                self.has_all_fields(record)
        self.assertIn("<td>tables</td>", status._repr_html_())

    def test_bytes_in_use_are_those_of_the_table(self):
        def written():
            return next(one for one in pool.instances("pool") if one.label == "j1").used or 0

        wait_for("the report of what is in use", lambda: written() >= 8 << 20)
        heading, lines = table_rows(program("status", "--pool", "pool"), "instance")
        cell = next(line for line in lines if line[0] == "j1")[heading.index("used")]
        self.assertEqual(cell, f"{written() / (1 << 20):.2f} MiB")
        self.assertEqual(pool.instances("pool").rows()[1]["used"], written())

    def test_usage_and_sessions(self):
        usage = {one.token: one for one in pool.jobs("pool")}
        self.assertEqual(sorted(usage), ["j1", "tables"])
        self.has_all_fields(usage["j1"])
        self.assertEqual(usage["j1"].staged_in.bytes, 5)
        self.assertIsNone(pool.job("j1", "pool").ended)
        expected = json.loads(program("admin", "usage", "--json", "--pool", "pool"))
        self.assertEqual([one.document for one in pool.usage("pool")], expected)
        sessions = pool.sessions("pool", instance="j1")
        self.assertTrue(all(session.label == "j1" for session in sessions))
        for session in sessions:
            self.has_all_fields(session)
        self.assertEqual(len(pool.sessions("pool", host="nowhere")), 0)


class EndedJob(ProgramTest):
    def test_usage_after_the_end(self):
        Path("go").touch()
        with start(self.directory) as job:
            self.assertEqual(job.wait(60), 0)
        usage = pool.job("j1", "pool")
        self.assertEqual((usage.io.written, usage.lifetime), (8 << 20, "job"))
        self.assertGreater(usage.ended, usage.created)
        self.assertEqual(len(pool.jobs("pool").rows()), 2)
        with self.assertRaisesRegex(forebay.Error, "no job `j2` is known"):
            pool.job("j2", "pool")


class NoPool(ProgramTest):
    def test_error_says_how_to_make_one(self):
        with self.assertRaisesRegex(forebay.Error, "makes one"):
            pool.status("nowhere")


class Logs(ProgramTest):
    def test_logs_in_directories(self):
        Path("logs").mkdir()
        self.assertEqual(forebay.log.logs("logs"), [])
        Path("logs/data.0.0.fblog").write_bytes(bytes(1 << 16))
        Path("logs/other.0.0.fblog").write_bytes(b"x" * 100)
        logs = forebay.log.logs("logs")
        self.assertEqual([log.state for log in logs], ["blank", "unreadable"])
        self.assertEqual([log.document for log in logs], json.loads(program("log", "list", "--json", "logs")))
        self.assertEqual([len(log.slots) for log in logs], [0, 0])
        with self.assertRaisesRegex(forebay.Error, "nowhere"):
            forebay.log.logs("nowhere")
