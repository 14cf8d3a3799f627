//! Reports and figures in Chromium, after their scripts have run.

use crate::sample;
use forebay_app::figures;
use forebay_app::plot::{palette, png};
use forebay_app::report::{self, Inputs};
use forebay_app::validate::published;
use std::path::{Path, PathBuf};
use std::process::Command;

fn inputs() -> Inputs {
    Inputs {
        command: ["forebay", "sim", "ior", "--", "-o", "a b"].map(String::from).to_vec(),
        machine_text: "name = \"<toy>\"".to_string(),
        machine_files: vec![],
        settings: vec![("seed", "1".to_string())],
    }
}

fn keep(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("a file in target/tmp");
    path
}

/// The DOM of a page in Chromium, and its console messages.
fn browse(page: &Path) -> (String, String) {
    let profile = tempfile::tempdir().expect("a temporary directory");
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var("PATH").unwrap_or_default();
    let found =
        names.into_iter().find(|n| std::env::split_paths(&path).any(|p| p.join(n).is_file()));
    let mut chromium = Command::new(found.unwrap_or("chromium"));
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()));
    let output = chromium.output().expect("chromium, which `make test` installs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let console: String = String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|l| l.contains("CONSOLE"))
        .map(|l| format!("{l}\n"))
        .collect();
    (String::from_utf8_lossy(&output.stdout).into_owned(), console)
}

fn count(dom: &str, what: &str) -> usize {
    dom.matches(what).count()
}

#[test]
fn ior_report_works_in_a_browser() {
    let study = sample::study();
    let table = published::all().unwrap();
    let rows = figures::ior::comparable(&study, true, &table);
    assert_eq!(rows.len(), 2, "cap and client rate of Trinity Phase II");
    let figure = figures::ior::bandwidth(&study, &rows).draw(&palette::PAPER);
    let svg = figure.document(palette::PAPER.surface);
    keep("ior.svg", &svg);
    keep("ior.png", png::render(&svg).unwrap());
    let page = keep("ior.html", report::ior(&study, &rows, &inputs()));
    let (dom, console) = browse(&page);
    assert_eq!(console, "");
    assert!(dom.contains("data-ready=\"yes\""), "the script did not reach its end");
    assert_eq!(count(&dom, "<details class=\"point\""), 14);
    assert_eq!(count(&dom, "class=\"heat\""), 28);
    assert!(dom.contains("published 1,200"));
    assert_eq!(count(&dom, "per node, acknowledged"), 28, "one for each phase");
    for line in ["IOR / nodes", "acknowledged", "slowest node", "fastest node", "published"] {
        assert!(dom.contains(&format!(">{line}<")), "{line}");
    }
    // Tooltips were taken over by the script, so no mark has a title of its own any more.
    assert!(dom.contains("aria-label=\"8,192 compute nodes: simulated write 1,190 GB/s\""));
    assert_eq!(count(&dom, "</title></circle>"), 0);
    assert!(dom.contains("name = \"&lt;toy&gt;\""));
    assert!(dom.contains("forebay sim ior -- -o 'a b'"));
}

/// The actions of a reader, as a script at the end of the page.
const READER: &str = r##"<script>
const table = document.querySelector("#bandwidth table");
table.tHead.rows[0].cells[2].click();
table.tHead.rows[0].cells[2].click();
const first = table.tBodies[0].rows[0].cells[0].textContent;
document.body.dataset.first = first;
const tip = document.getElementById("tip");
const mark = document.querySelector("#bandwidth circle");
mark.dispatchEvent(new MouseEvent("mousemove", { clientX: 5, clientY: 5 }));
document.body.dataset.mark = tip.textContent;
for (const point of document.querySelectorAll("details.point")) { point.open = true; }
const map = document.querySelector("#points details:last-child svg.heat");
const data = JSON.parse(map.parentNode.querySelector("script").textContent);
const area = map.getBoundingClientRect();
const scale = area.width / map.viewBox.baseVal.width;
map.dispatchEvent(new MouseEvent("mousemove", {
  clientX: area.left + (data.x + 3.5 * data.cell) * scale,
  clientY: area.top + (data.y + 2.5 * data.cell) * scale,
}));
document.body.dataset.heat = tip.textContent;
</script>"##;

#[test]
fn tables_sort_and_marks_have_tooltips() {
    let study = sample::study();
    let page = report::ior(&study, &[], &inputs()).replace("</body>", &format!("{READER}</body>"));
    let (dom, console) = browse(&keep("reader.html", page));
    assert_eq!(console, "");
    // Sorted twice by write rate: the largest comes first.
    assert!(dom.contains("aria-sort=\"descending\""));
    assert!(dom.contains("data-first=\"1,024\"") || dom.contains("data-first=\"8,192\""));
    assert!(dom.contains("data-mark=\"1 compute nodes: simulated write 2.00 GB/s\""));
    let bytes = study.points[13].phases[0].heat[2][3] as f64 / f64::from(1 << 20);
    assert!(dom.contains(&format!("data-heat=\"group 2 to group 3: {bytes:.1} MiB\"")));
}

#[test]
fn traffic_interference_and_collective_reports_work_in_a_browser() {
    let page = keep("traffic.html", report::traffic(&sample::traffic(), &inputs()));
    let (dom, console) = browse(&page);
    assert_eq!(console, "");
    assert!(dom.contains("data-ready=\"yes\""));
    assert!(dom.contains("Uniform traffic on theta"));
    let page = keep("interference.html", report::interference(&sample::interference(), &inputs()));
    let (dom, console) = browse(&page);
    assert_eq!(console, "");
    assert!(dom.contains("data-ready=\"yes\""));
    assert_eq!(count(&dom, "<details class=\"point\""), 4);
    let page = keep("collective.html", report::collective(&sample::collective(), &inputs()));
    let (dom, console) = browse(&page);
    assert_eq!(console, "");
    assert!(dom.contains("data-ready=\"yes\"") && dom.contains("allreduce on theta"));
    let page = keep("darshan.html", report::darshan(&sample::darshan(), &inputs()));
    let (dom, console) = browse(&page);
    assert_eq!(console, "");
    assert!(dom.contains("data-ready=\"yes\"") && dom.contains("solve.darshan on trinity"));
    assert!(dom.contains("./solve &lt;input&gt;"), "text of the log is escaped");
}

#[test]
fn reports_of_real_runs_work_in_a_browser() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ior = "-- -a POSIX -F -w -r -t 512k -b 1m";
    for (name, line, word) in [
        ("ior", format!("sim ior --machine toy --nodes 1..8 {ior}"), "IOR on toy"),
        (
            "traffic",
            "sim traffic --machine toy --messages 20".to_string(),
            "Uniform traffic on toy",
        ),
        (
            "both",
            format!("sim interference --machine toy --nodes 2 --traffic-nodes 8 {ior}"),
            "IOR with uniform traffic on toy",
        ),
    ] {
        let (line, options) = line.split_once(" -- ").unwrap_or((&line, ""));
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .current_dir(directory.path())
            .args(line.split(' '))
            .args(["--quiet", "--out", name, "--"])
            .args(options.split_whitespace())
            .output()
            .expect("forebay");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (dom, console) = browse(&directory.path().join(name).join("report.html"));
        assert_eq!(console, "", "{name}");
        assert!(dom.contains("data-ready=\"yes\""), "{name}");
        assert!(dom.contains(word), "{name}");
        assert!(dom.contains("class=\"heat\""), "{name}");
    }
}

#[test]
fn script_error_is_reported_by_the_browser() {
    let page = keep("fault.html", "<script>undefinedName();</script>");
    let (_, console) = browse(&page);
    assert!(console.contains("undefinedName"), "{console}");
}
