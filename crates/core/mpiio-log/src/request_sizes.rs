//! Sizes of the requests that logging and applying make, for models of them.

use crate::format::{HEAD_BYTES, MAX_PART, padded};
use crate::gather::{ALONE, READ_BYTES};
use crate::identity::Limits;
use crate::plan::Alignment;

/// Bytes from which on contiguous writes go to the file past a log that is applied at the close, unless
/// the program's environment has another value.
pub const PAST_LOG: u64 = 4 << 20;

/// Bytes that a write of `length` bytes adds to a log: its records, without those of views and segments.
pub fn logged_bytes(length: u64) -> u64 {
    let record = |data: u64| padded(HEAD_BYTES as u64 + data);
    let rest = match length % MAX_PART {
        0 => 0,
        rest => record(rest),
    };
    length / MAX_PART * record(MAX_PART) + rest
}

/// Bytes of each request to the log's file system for a program's writes one after another, whatever
/// their lengths: records are collected, and longer writes have several requests.
pub fn log_request_bytes() -> u64 {
    Limits::default().buffer_bytes as u64
}

/// Bytes of each read from a log when the writes of `length` bytes are applied, of which
/// `consecutive` bytes are together both in the log and in the file.
pub fn log_read_bytes(length: u64, consecutive: u64) -> u64 {
    let piece = length.min(MAX_PART);
    if piece >= ALONE { piece } else { consecutive.clamp(piece, READ_BYTES) }
}

/// Most bytes of a write that is a whole stripe: its data is in memory.
const LARGEST_STRIPE: u64 = 64 << 20;

/// Most bytes of a write to a file with these stripes, and its alignment.
pub fn alignment_for(stripe: u64) -> Alignment {
    Alignment { stripe, largest: Alignment::default().largest.max(stripe.min(LARGEST_STRIPE)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_heads_and_parts() {
        assert_eq!(logged_bytes(0), 0);
        assert_eq!(logged_bytes(100), 160);
        assert_eq!(logged_bytes(64 << 10), (64 << 10) + 56);
        assert_eq!(logged_bytes((512 << 10) + 8), (512 << 10) + 2 * 56 + 64);
    }

    #[test]
    fn writes_of_files_with_enormous_stripes_need_bounded_memory() {
        assert_eq!(alignment_for(1 << 20).largest, 16 << 20);
        assert_eq!(alignment_for(64 << 20).largest, 64 << 20);
        assert_eq!(alignment_for(512 << 20), Alignment { stripe: 512 << 20, largest: 64 << 20 });
    }

    #[test]
    fn small_reads_of_logs_are_joined_and_large_ones_divided() {
        assert_eq!(log_read_bytes(512, 4 << 20), 512 << 10);
        assert_eq!(log_read_bytes(512, 512), 512);
        assert_eq!(log_read_bytes(1 << 20, 16 << 20), 256 << 10);
    }
}
