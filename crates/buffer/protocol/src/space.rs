//! Units of space in a data object.

/// Unit in which reserved space is used up, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Size of the blocks touched by a write of `length` bytes at `offset`, in bytes.
pub fn block_bytes(offset: u64, length: u64) -> u64 {
    if length == 0 {
        return 0;
    }
    ((offset + length - 1) / BLOCK_BYTES - offset / BLOCK_BYTES + 1) * BLOCK_BYTES
}
