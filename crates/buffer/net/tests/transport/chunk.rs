//! Division of payloads into chunks.

use forebay_net::chunk::{MAX_CHUNK_BYTES, chunk_lengths};
use proptest::prelude::*;

proptest! {
    #[test]
    fn chunks_end_at_multiples_of_their_maximum(offset in 0u64..1 << 40, length in 0usize..1 << 22) {
        let lengths: Vec<_> = chunk_lengths(offset, length).collect();
        prop_assert_eq!(lengths.iter().sum::<usize>(), length);
        let mut at = offset;
        for (i, one) in lengths.iter().enumerate() {
            at += *one as u64;
            prop_assert!(*one > 0 && *one <= MAX_CHUNK_BYTES);
            prop_assert!(i + 1 == lengths.len() || at.is_multiple_of(MAX_CHUNK_BYTES as u64));
        }
    }
}
