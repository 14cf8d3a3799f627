"""Run directories and documents, also of other versions."""

import base64
import copy
import json
from html.parser import HTMLParser
from pathlib import Path

import forebay

from .support import LOG, TRACE, ProgramTest, program


class Page(HTMLParser):
    """The texts and pictures of HTML whose elements are closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.pictures = [], [], []
        self.feed(html)
        if self.open:
            raise AssertionError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.pictures.append(dict(attributes)["src"])
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise AssertionError(f"{tag} is closed first")

    def handle_data(self, data):
        self.texts.append(data)


class Load(ProgramTest):
    def test_each_kind(self):
        ior = ["--", "-F", "-w", "-t", "256k", "-b", "2m"]
        flow = ["--machine", "toy", "--fidelity", "flow"]
        kinds = {
            forebay.IorResult: ["sim", "ior", *flow, "--nodes", "1,2", *ior],
            forebay.SweepResult: ["sim", "ior", *flow, "--nodes=1", "--sweep=nodes=1,2", *ior],
            forebay.TrafficResult: ["sim", "traffic", "--machine", "toy"],
            forebay.InterferenceResult: [
                "sim",
                "interference",
                *flow,
                "--nodes=2",
                "--traffic-nodes=2",
                *ior,
            ],
            forebay.CollectiveResult: ["sim", "collective", "barrier", "--machine", "toy", "--nodes", "2"],
            forebay.DarshanResult: ["sim", "darshan", str(LOG), *flow],
            forebay.JobsResult: ["sim", "jobs", str(TRACE), "--nodes=8", "--storage-nodes=2", "--capacity=40GB"],
        }
        for number, (kind, words) in enumerate(kinds.items()):
            end = words.index("--") if "--" in words else len(words)
            out = [f"--out=run-{number}", f"--json={number}.json"]
            program(*words[:end], *out, *words[end:])
            result = forebay.load(f"run-{number}")
            self.assertIs(type(result), kind)
            self.has_all_fields(result)
            self.assertEqual(result.directory, self.directory / f"run-{number}")
            self.assertEqual(result.table, Path(f"run-{number}/table.txt").read_text())
            self.assertEqual(result.report is None, kind is forebay.SweepResult)
            self.assertEqual(forebay.load(f"{number}.json"), result)
            self.assertEqual(forebay.load(f"{number}.json").directory, result.directory)
            page = Page(result._repr_html_())
            picture = base64.b64decode(page.pictures[0].partition("base64,")[2])
            self.assertEqual(picture, result.picture.read_bytes())
            self.assertIn(result.rows().columns()[0], page.texts)
            for text in result.warnings:
                self.assertIn(text, page.texts)

    def test_directories_that_are_gone_or_were_not_written(self):
        ior = ["sim", "ior", "--machine=toy", "--fidelity=flow", "--nodes=1", "--json=a.json"]
        program(*ior, "--out=run", "--", "-w", "-b", "1m")
        self.assertEqual(forebay.load("a.json").directory, self.directory / "run")
        Path("run").rename("moved")
        self.assertIsNone(forebay.load("a.json").directory)
        self.assertEqual(forebay.load("moved").directory, self.directory / "moved")
        program(*ior, "--no-out", "--", "-w", "-b", "1m")
        self.assertNotIn("directory", json.loads(Path("a.json").read_text()))
        self.assertIsNone(forebay.load("a.json").directory)

    def test_series_are_tables(self):
        result = forebay.ior("-F -w -t 256k -b 4m", "toy", 1, fidelity="packet", no_out=True)
        page = Page(result.points[0].phases[0].series._repr_html_())
        self.assertEqual(page.texts[:2], ["seconds", "write_GBps"])

    def test_what_is_no_result(self):
        Path("empty").mkdir()
        Path("text.json").write_text("not JSON")
        Path("other.json").write_text('{"name": "x"}')
        for name, reason in (
            ("empty", "no summary.json"),
            ("text.json", "no result document"),
            ("other.json", "no `schema`"),
        ):
            with self.assertRaises(forebay.Error) as caught:
                forebay.load(name)
            self.assertIn(reason, str(caught.exception))
            self.assertTrue(str(caught.exception).startswith(str(self.directory / name)))
        self.assertRaises(FileNotFoundError, forebay.load, "nowhere")

    def of_version(self, document, schema):
        Path("document.json").write_text(json.dumps({**document, "schema": schema}))
        del self.shown[:]
        return forebay.load("document.json"), [str(one.message) for one in self.shown]

    def test_documents_of_other_versions(self):
        words = ["--machine", "toy", "--nodes", "1", "--no-out", "--json", "-", "--", "-F", "-w", "-b", "16m"]
        document = json.loads(program("sim", "ior", *words))
        older = copy.deepcopy(document)
        del older["published"], older["points"][0]["fidelity"]
        result, shown = self.of_version(older, 1)
        self.assertEqual([len(result.published), result.points[0].fidelity], [0, None])
        self.assertEqual(result.rows()[0]["write_GBps"], document["points"][0]["write_GBps"])
        self.assertEqual(shown, [])
        result, shown = self.of_version({**document, "invented": 7}, 3)
        self.assertEqual(result.invented, 7)
        self.assertIn("version 3; this package knows versions up to 2", shown[0])
        self.assertRaises(AttributeError, getattr, result, "inventedd")
        traffic = json.loads(program("sim", "traffic", "--machine=toy", "--no-out", "--json=-"))
        _, shown = self.of_version(traffic, 1)
        self.assertIn("include the warm-up", shown[0])

    def test_unknown_kinds(self):
        result, _ = self.of_version({"kind": "sim tides", "height": 2, "rows": [{"a": 1}]}, 2)
        self.assertEqual((result.height, result.rows()), (2, [{"a": 1}]))
        result, _ = self.of_version({"kind": "sim tides", "height": 2}, 2)
        self.assertEqual(result.rows()[0]["height"], 2)


class Tables(ProgramTest):
    def test_html_is_escaped_and_bounded(self):
        rows = forebay.Rows({"<b>": n, "text": "<script>", "none": None} for n in range(100))
        page = Page(rows._repr_html_())
        self.assertIn("<script>", page.texts)
        self.assertIn("40 more rows", page.texts)
        self.assertNotIn("none", page.texts)

    def test_rows_have_the_same_columns(self):
        table = forebay.Table(
            [forebay.Record({"a": 1, "in": {"x": 2.5}}), forebay.Record({"a": 2, "b": ["x", "y"]})]
        )
        expected = [{"a": 1, "in_x": 2.5, "b": None}, {"a": 2, "in_x": None, "b": "x, y"}]
        self.assertEqual(table.rows(), expected)

    def test_to_pandas(self):
        try:
            import pandas
        except ImportError:
            self.assertRaisesRegex(ImportError, "needs pandas", forebay.Rows().to_pandas)
            self.skipTest("pandas is not installed")
        result = forebay.ior("-F -w -t 256k -b 4m", "toy", [1, 2], fidelity="flow", no_out=True)
        for of in (result, result.points, result.points[0].phases, result.points[0].phases[0].series):
            frame = of.to_pandas()
            self.assertIsInstance(frame, pandas.DataFrame)
            rows = of.rows()
            self.assertEqual(list(frame.columns), rows.columns())
            self.assertEqual(len(frame), len(rows))
        self.assertEqual(result.to_pandas()["write_GBps"].sum(), sum(p.write_GBps for p in result.points))
