//! File locks, compared with a table that has an entry for each byte.

use forebay_protocol::lock::{FileLock, HeldLock, HeldRanges};
use forebay_protocol::{HandleId, LockOwner};
use proptest::prelude::*;

const BYTES: u64 = 24;

#[derive(Clone, Debug)]
enum Act {
    Set(u64, u64, bool, u64),
    Clear(u64, u64),
    ClearHandle(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let range = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let act = prop_oneof![
        4 => (range.clone(), any::<bool>(), 0u64..3)
            .prop_map(|((start, end), exclusive, handle)| Act::Set(start, end, exclusive, handle)),
        2 => range.prop_map(|(start, end)| Act::Clear(start, end)),
        1 => (0u64..3).prop_map(Act::ClearHandle),
    ];
    prop::collection::vec(act, 0..40)
}

proptest! {
    #[test]
    fn ranges_equal_a_table_of_bytes(acts in acts()) {
        let mut ranges = HeldRanges::default();
        let mut bytes: Vec<Option<(bool, u64)>> = vec![None; BYTES as usize];
        for act in acts {
            match act {
                Act::Set(start, end, exclusive, handle) => {
                    let owner = LockOwner::Fcntl(1);
                    let lock = FileLock { owner, start, end, exclusive, pid: 0 };
                    ranges.acquire(HeldLock { lock, handle: HandleId(handle) });
                    bytes[start as usize..=end as usize].fill(Some((exclusive, handle)));
                }
                Act::Clear(start, end) => {
                    let held = &mut bytes[start as usize..=end as usize];
                    prop_assert_eq!(ranges.release(start, end), held.iter().any(Option::is_some));
                    held.fill(None);
                }
                Act::ClearHandle(handle) => {
                    let mine = |byte: &Option<(bool, u64)>| byte.is_some_and(|b| b.1 == handle);
                    let any = bytes.iter().any(mine);
                    prop_assert_eq!(ranges.release_handle(HandleId(handle)), any);
                    bytes.iter_mut().filter(|byte| mine(byte)).for_each(|byte| *byte = None);
                }
            }
            let mut found = vec![None; BYTES as usize];
            let mut last: Option<HeldLock> = None;
            for held in ranges.iter() {
                prop_assert!(held.lock.start <= held.lock.end);
                if let Some(last) = last {
                    prop_assert!(last.lock.end < held.lock.start);
                    let joined = last.lock.end + 1 == held.lock.start
                        && last.handle == held.handle
                        && last.lock.exclusive == held.lock.exclusive;
                    prop_assert!(!joined, "equal neighbours are merged");
                }
                last = Some(*held);
                found[held.lock.start as usize..=held.lock.end as usize]
                    .fill(Some((held.lock.exclusive, held.handle.0)));
            }
            prop_assert_eq!(&found, &bytes);
        }
    }
}

#[test]
fn last_byte_of_the_offset_range_can_be_locked() {
    let lock =
        FileLock { owner: LockOwner::Fcntl(1), start: 5, end: u64::MAX, exclusive: true, pid: 0 };
    let mut ranges = HeldRanges::default();
    ranges.acquire(HeldLock { lock, handle: HandleId(1) });
    ranges.acquire(HeldLock { lock: FileLock { start: 0, end: 4, ..lock }, handle: HandleId(1) });
    assert_eq!(ranges.len(), 1);
    assert!(ranges.release(7, u64::MAX));
    assert_eq!(ranges.iter().next().unwrap().lock.end, 6);
}
