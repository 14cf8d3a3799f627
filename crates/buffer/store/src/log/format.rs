//! Sizes and names of the log's format.

/// Bytes of a record before its payload.
pub(super) const RECORD_HEADER_BYTES: usize = 24;
/// Longest payload of a record.
pub const MAX_RECORD_BYTES: usize = 192 * 1024;
/// Space that [`Log::ensure_headroom`](super::Log::ensure_headroom) guarantees unless it returns
/// [`LogSpace::Exhausted`](super::LogSpace::Exhausted); at most a quarter of a segment.
pub const HEADROOM_BYTES: u64 = 1 << 20;

/// Headroom in a log with segments of `segment_size` bytes.
pub(super) fn headroom_bytes(segment_size: u64) -> u64 {
    HEADROOM_BYTES.min(segment_size / 4)
}

/// Name of the segment that begins with record `first`.
pub(super) fn segment_name(first: u64) -> String {
    format!("log.{first:016x}")
}

/// First sequence number of a segment, from its name.
pub fn segment_first_sequence(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("log.")?, 16).ok()
}
