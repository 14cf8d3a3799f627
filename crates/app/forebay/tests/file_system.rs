//! `forebay sim ior --file-system pfs`.

use crate::forebay;
use forebay::WorkDir;
use serde_json::Value;

/// One node of Shaheen II, whose client sends less than a target writes, with the default of one stripe.
#[test]
fn parallel_file_system_is_in_table_document_and_report_with_the_stripes_of_a_file() {
    let dir = WorkDir::new();
    let line = "sim ior --machine shaheen2 --nodes 1 --fidelity flow --file-system pfs --out run \
                -- -F -w -t 1m -b 4g";
    let output = dir.expect_success(line);
    assert!(output.stdout.contains("fidelity: flow"), "{}", output.stdout);
    let document: Value = serde_json::from_str(&dir.read("run/summary.json")).unwrap();
    assert_eq!(document["file_system"], "pfs, 1 x 1 MiB a file");
    assert_eq!(document["burst_buffers"], 0);
    let phase = &document["points"][0]["phases"][0];
    assert_eq!(
        (phase["bytes"].as_u64(), phase["operations"].as_u64()),
        (Some(4 << 30), Some(4_096))
    );
    let rate = phase["GBps"].as_f64().unwrap();
    assert!(rate > 0.5 && rate <= 2.5, "{rate}");
    let report = dir.read("run/report.html");
    assert!(report.contains("pfs, 1 x 1 MiB a file"), "the title names the file system");
    assert!(!report.contains("0 burst-buffer nodes"));
}

#[test]
fn options_of_the_other_file_system_are_refused() {
    let dir = WorkDir::new();
    for (options, machine, expected) in [
        ("--stripe-count 4", "toy", "--stripe-count is for the parallel file system"),
        ("--stripe-size 1MiB", "toy", "--stripe-size is for the parallel file system"),
        (
            "--file-system pfs --burst-buffers 4",
            "shaheen2",
            "--burst-buffers is for the burst buffer",
        ),
        ("--file-system pfs --stripe-count 145", "shaheen2", "has 144 OSTs; request 1 to 144"),
        ("--file-system pfs", "toy", "[pfs.lustre]"),
    ] {
        let line = format!(
            "sim ior --machine {machine} --nodes 1 --no-out {options} -- -F -w -t 1m -b 1m"
        );
        let error = dir.expect_invalid_input(&line);
        assert!(error.contains(expected), "{error}");
    }
}
