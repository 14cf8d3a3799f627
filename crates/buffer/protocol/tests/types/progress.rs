//! Progress of a stage.

use forebay_protocol::progress::{StageAmount, StagePhase, StageProgress};

#[test]
fn records_of_earlier_versions_deserialize_with_defaults() {
    let old = r#"{"files":1,"files_total":2,"bytes":3,"bytes_total":4,"all_found":true}"#;
    let progress: StageProgress = serde_json::from_str(old).unwrap();
    assert_eq!((progress.files, progress.bytes_total), (1, 4));
    assert_eq!(progress.read_back, StageAmount::default());
    let text = serde_json::to_string(&progress).unwrap();
    assert!(text.contains(r#""phase":"copying""#), "{text}");
    assert!(text.contains(r#""copying":0"#), "{text}");
    assert_eq!(serde_json::from_str::<StageProgress>(&text).unwrap(), progress);
}

#[test]
fn files_not_yet_read_back_are_not_good() {
    // Two files and a link are copied; one of the files was read back.
    let mut progress = StageProgress {
        files: 3,
        files_total: 4,
        phase: StagePhase::ReadingBack,
        ..StageProgress::default()
    };
    assert_eq!(progress.good_files(), 3, "nothing is to be read back");
    (progress.read_back.files, progress.read_back.files_total) = (1, 2);
    assert_eq!(progress.good_files(), 2);
    assert_eq!(progress.present().files_total, 2);
    progress.phase = StagePhase::Finishing;
    assert_eq!(progress.present().files_total, 4);
}
