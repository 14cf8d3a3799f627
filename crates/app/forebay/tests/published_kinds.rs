//! The published rows that are like a test, and what they say of a prediction.

use forebay_app::validate::kinds::{note, published_like};
use forebay_machine::results::PublishedKind;
use forebay_machine::study::FileSystem;
use forebay_workload::ior::Ior;

fn kind(line: &str, file_system: FileSystem) -> PublishedKind {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    let test = Ior::parse(&words).unwrap().remove(0);
    published_like(&test, test.transfer, &file_system).unwrap().remove(0)
}

/// IO500 with 10, 300 and 1,024 nodes; the hand-over of locks was fitted to the last one's writes.
#[test]
fn small_transfers_to_a_shared_file_are_those_of_io500() {
    let found = kind("-w -t 47008 -b 47008 -s 200", FileSystem::BurstBuffer);
    assert_eq!(found.rows, ["io500-dw-300-hard-write", "io500-dw-10-hard-write"]);
    assert_eq!((found.hold, found.fitted), (0, 1));
    assert_eq!(found.error_percent, Some([-37.9, 302.7]));
    assert_eq!(
        note(&found),
        "published rows of this kind (write, shared file, transfers below 64 KiB, burst buffer): 0 of 2 within \
         the measured range or the accepted difference, errors -38% to +303%; 1 row more to which a number was fitted"
    );
    // `-c` is without effect on POSIX.
    assert_eq!(kind("-c -w -t 47008 -b 47008 -s 200", FileSystem::BurstBuffer), found);
    let reads = kind("-r -t 4k -b 1m", FileSystem::BurstBuffer);
    assert_eq!((reads.rows.len(), reads.hold, reads.fitted), (3, 0, 0));
}

#[test]
fn files_transfers_and_file_system_tell_kinds_apart() {
    let pfs = FileSystem::Parallel { stripe_count: None, stripe: None };
    let shared = kind("-w -t 32m -b 32m", pfs);
    let vpic = [
        "cori-daily-lustre",
        "cori-knl-lustre",
        "edison-scratch1",
        "edison-scratch2",
        "edison-scratch3",
    ];
    assert_eq!(shared.rows, vpic.map(|name| format!("{name}-vpic-write")));
    let collective = kind("-a MPIIO -c -w -t 4m -b 4m", pfs);
    assert!(collective.rows.contains(&"cori-knl-lustre-shared-write".to_string()));
    assert!(!collective.rows.iter().any(|row| row.contains("vpic")), "{collective:?}");
    let own = kind("-F -w -t 1m -b 4m", FileSystem::BurstBuffer);
    assert!(own.rows.contains(&"trinity-cap-write".to_string()), "{own:?}");
    assert!(!own.rows.iter().any(|row| row.contains("lustre")), "{own:?}");
}

#[test]
fn kind_without_rows_says_that_nothing_is_known() {
    let pfs = FileSystem::Parallel { stripe_count: None, stripe: None };
    let found = kind("-F -w -t 64k -b 1m", pfs);
    assert!(found.rows.is_empty() && found.error_percent.is_none());
    assert!(note(&found).ends_with("none; how far off such rates are is not known"));
}
