//! Early writeback.

use forebay_net::writeback::{WRITEBACK_BYTES, WriteBehind};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

#[test]
fn sequential_writes_start_writeback_after_every_8_mib() {
    let behind = WriteBehind::default();
    let begun: Vec<_> = (0..20).filter_map(|i| behind.due(i * MIB, MIB)).collect();
    assert_eq!(begun, [(0, WRITEBACK_BYTES), (WRITEBACK_BYTES, WRITEBACK_BYTES)]);
}

#[test]
fn random_writes_start_no_writeback() {
    let behind = WriteBehind::default();
    for i in 0..100 {
        assert_eq!(behind.due(i * 3 * MIB, MIB), None);
    }
}

proptest! {
    #[test]
    fn writeback_is_started_for_written_ranges_only(writes: Vec<(bool, u32, u32)>) {
        let behind = WriteBehind::default();
        let (mut at, mut run) = (0, 0);
        for (jump, place, length) in writes {
            if jump && u64::from(place) != at {
                (at, run) = (u64::from(place), u64::from(place));
            }
            at += u64::from(length);
            if let Some((from, bytes)) = behind.due(at - u64::from(length), u64::from(length)) {
                prop_assert!(from >= run && from + bytes == at && bytes >= WRITEBACK_BYTES);
            }
        }
    }
}
