//! Access patterns: offsets, coverage, and owners of the data read.

use forebay_workload::ior::{Access, AccessPattern, FileId, Ior, Processes, Transfer};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

fn test(line: &str) -> Ior {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&arguments).unwrap_or_else(|e| panic!("{line}: {e}")).remove(0)
}

fn pattern(line: &str, count: u32, per_node: u32) -> AccessPattern {
    let processes = Processes { count, per_node, seed: 1 };
    AccessPattern::new(&test(line), processes).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn offsets(pattern: &AccessPattern, rank: u32, access: Access) -> Vec<u64> {
    (0..pattern.transfers_per_rank()).map(|i| pattern.transfer(rank, access, i).offset).collect()
}

/// All transfers of all ranks, each with its count.
fn all(pattern: &AccessPattern, access: Access) -> BTreeMap<Transfer, u32> {
    let mut made = BTreeMap::new();
    for rank in 0..pattern.tasks() {
        for index in 0..pattern.transfers_per_rank() {
            *made.entry(pattern.transfer(rank, access, index)).or_insert(0) += 1;
        }
    }
    made
}

/// Asserts that the transfers cover each byte of each file exactly once, and no other byte.
fn assert_covered_once(pattern: &AccessPattern, access: Access) {
    let made = all(pattern, access);
    let per_file = pattern.total_bytes() / u64::from(pattern.files());
    let mut ends: BTreeMap<FileId, u64> = BTreeMap::new();
    for (transfer, times) in made {
        assert_eq!(times, 1, "{transfer:?}");
        let end = ends.entry(transfer.file).or_insert(0);
        assert_eq!(transfer.offset, *end, "a gap before {transfer:?}, or an overlap");
        *end += transfer.bytes;
    }
    assert_eq!(ends.len() as u32, pattern.files());
    assert!(ends.values().all(|&end| end == per_file), "{ends:?}");
}

#[test]
fn contiguous_transfers_follow_each_other_in_a_file() {
    for line in [
        "-b 64 -t 32 -s 3",
        "-F -b 64 -t 32 -s 3",
        "-F -b 96 -t 32 -s 2 -r -C",
        "-b 96 -t 32 -z",
        "-F -b 32 -t 32 -s 4",
    ] {
        let pattern = pattern(line, 3, 1);
        let mut followed = 0;
        for (rank, access) in [(0, Access::Write), (2, Access::Write), (1, Access::Read)] {
            for index in 0..pattern.transfers_per_rank() {
                let count = pattern.contiguous_transfers(index);
                assert!((1..=pattern.transfers_per_rank() - index).contains(&count), "{line}");
                for index in index..index + count - 1 {
                    let [this, next] =
                        [index, index + 1].map(|i| pattern.transfer(rank, access, i));
                    let follows = next.file == this.file && next.offset == this.offset + this.bytes;
                    assert!(follows, "{line}: {this:?} {next:?}");
                    followed += 1;
                }
            }
        }
        assert_eq!(followed > 0, !line.contains("-z"), "{line}");
    }
}

#[test]
fn shared_file_offsets_equal_the_calculation_by_hand() {
    // segment × tasks × block + rank × block + i × transfer
    let l = pattern("-b 64 -t 32 -s 2", 3, 1);
    assert_eq!(offsets(&l, 0, Access::Write), [0, 32, 192, 224]);
    assert_eq!(offsets(&l, 2, Access::Write), [128, 160, 320, 352]);
    assert_eq!(
        l.transfer(2, Access::Write, 3),
        Transfer { file: FileId(0), offset: 352, bytes: 32 }
    );
    assert_eq!((l.transfers_per_rank(), l.total_bytes(), l.files()), (4, 384, 1));
}

#[test]
fn file_per_process_offsets_equal_the_calculation_by_hand() {
    let l = pattern("-F -b 64 -t 32 -s 2", 3, 1);
    for rank in 0..3 {
        assert_eq!(offsets(&l, rank, Access::Write), [0, 32, 64, 96]);
        assert_eq!(l.file(rank, Access::Write), FileId(u64::from(rank)));
        assert_eq!(l.file_removed_by(rank), Some(FileId(u64::from(rank))));
    }
}

#[test]
fn option_c_reads_the_data_of_the_next_node() {
    // Four nodes of three processes: rank r reads the data of r + 3, of another node.
    let own = pattern("-b 96 -t 32", 12, 3);
    let shifted = pattern("-b 96 -t 32 -C", 12, 3);
    for rank in 0..12 {
        let writer = (rank + 3) % 12;
        assert_eq!(shifted.data_owner(rank, Access::Read), writer);
        assert_ne!(shifted.node_of(rank), shifted.node_of(writer));
        assert_eq!(offsets(&shifted, rank, Access::Read), offsets(&own, writer, Access::Write));
        assert_eq!(offsets(&shifted, rank, Access::Write), offsets(&own, rank, Access::Write));
    }
    assert_eq!(pattern("-C -Q 2", 12, 3).data_owner(0, Access::Read), 6);
    assert_eq!(pattern("-C -F", 12, 3).file(11, Access::Read), FileId(2));
    assert_eq!(pattern("-C -Q 4", 12, 3).data_owner(5, Access::Read), 5, "once around");
    assert_eq!(pattern("-C", 12, 3).file_removed_by(1), None);
    assert_eq!(pattern("-C -Q 2000000000", 4, 4).data_owner(1, Access::Read), 1);
}

#[test]
fn ranks_fill_one_node_after_another() {
    let l = AccessPattern::new(&test(""), Processes { count: 10, per_node: 4, seed: 0 }).unwrap();
    assert_eq!((l.nodes(), l.processes_per_node()), (3, 4));
    assert_eq!((0..10).map(|r| l.node_of(r)).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
}

#[test]
fn option_z_upper_draws_ranks_beyond_the_node_offset() {
    let l = pattern("-Z -Q 2 -X 5", 64, 4);
    let mut seen = HashSet::new();
    for rank in 0..64 {
        let distance = (l.data_owner(rank, Access::Read) + 64 - rank) % 64;
        assert!(distance >= 8, "rank {rank} reads from {distance} ranks on");
        seen.insert(distance);
        assert_eq!(l.data_owner(rank, Access::Write), rank);
    }
    assert!(seen.len() > 25, "{seen:?}");
    // Another seed gives other owners; so does another repetition if the seed is negative.
    let readers =
        |l: AccessPattern| (0..64).map(|r| l.data_owner(r, Access::Read)).collect::<Vec<_>>();
    assert_ne!(readers(l), readers(pattern("-Z -Q 2 -X 6", 64, 4)));
    assert_eq!(readers(l), readers(l.for_iteration(1)));
    let l = pattern("-Z -Q 2 -X -5", 64, 4);
    assert_ne!(readers(l), readers(l.for_iteration(1)));
    let l = pattern("-ZZ -X -5", 64, 4);
    assert_ne!(readers(l), readers(l.for_iteration(1)));
}

#[test]
fn random_offsets_are_shuffled_equally_in_all_segments() {
    let l = pattern("-z -F -b 64k -t 1k -s 2", 4, 1);
    let first: Vec<u64> = offsets(&l, 0, Access::Write);
    assert!(!first[..64].is_sorted());
    assert!((0..64).all(|i| first[i] + 65536 == first[64 + i]));
    assert_ne!(first, offsets(&l, 1, Access::Write), "each file has its own order");
    assert_eq!(first, offsets(&l, 0, Access::Read), "read in the order of writing");
    let with = |extra: &str| {
        offsets(&pattern(&format!("-z -F -b 64k -t 1k -s 2 {extra}"), 4, 1), 0, Access::Write)
    };
    assert_ne!(first, with("-X 9"));
    assert_eq!(with("-X 9"), with("--random-offset-seed=9"));
    assert_eq!(with("-X 8 --random-offset-seed=9"), with("-X 9"));
    let other = Processes { count: 4, per_node: 1, seed: 2 };
    let other = AccessPattern::new(&test("-z -F -b 64k -t 1k -s 2"), other).unwrap();
    assert_ne!(first, offsets(&other, 0, Access::Write), "without -X the job's seed is used");
}

#[test]
fn random_offsets_of_a_shared_file_are_in_every_block() {
    let l = pattern("-z -b 64k -t 1k -s 2", 4, 1);
    let mine = offsets(&l, 1, Access::Write);
    assert!(mine[..64].iter().all(|&o| o < 4 * 65536));
    let blocks: HashSet<u64> = mine[..64].iter().map(|o| o / 65536).collect();
    assert_eq!(blocks.len(), 4, "in every task's block");
}

#[test]
fn wear_out_iterations_limit_transfers() {
    let l = pattern("-b 64 -t 32 -s 4 -O stoneWallingWearOutIterations=3", 2, 1);
    assert_eq!(l.transfers_per_rank(), 3);
    assert_eq!(offsets(&l, 0, Access::Write), [0, 32, 128]);
    assert_eq!(pattern("-O stoneWallingWearOutIterations=99", 2, 1).transfers_per_rank(), 4);
}

#[test]
fn each_repetition_with_option_m_has_files_of_its_own() {
    let l = pattern("-F -m", 8, 2);
    let files: HashSet<FileId> = (0..3)
        .flat_map(|i| (0..8).map(move |r| l.for_iteration(i).file(r, Access::Write)))
        .collect();
    assert_eq!(files.len(), 24);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn writes_cover_every_byte_once(
        tasks in 1_u32..20, per_node in 1_u32..6, segments in 1_u64..5, per_block in 2_u64..9,
        words in 1_u64..5, own in any::<bool>(), z in any::<bool>(), seed in any::<i32>(),
        order in prop_oneof![Just(""), Just("-C"), Just("-ZZ"), Just("-Z -Q 0")],
    ) {
        // -z excludes a reordered shared file, as in IOR.
        let order = if z && !own { "" } else { order };
        let transfer = 8 * words;
        let line = format!(
            "-b {} -t {transfer} -s {segments} -X {seed} {order} {} {}",
            per_block * transfer, if own { "-F" } else { "" }, if z { "-z" } else { "" },
        );
        let l = pattern(&line, tasks, per_node);
        assert_covered_once(&l, Access::Write);
        // Except with a single -Z, where each task draws independently, reads cover every byte once.
        if order != "-Z -Q 0" {
            assert_covered_once(&l, Access::Read);
        }
    }
}
