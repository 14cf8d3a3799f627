//! Blocks of a data object, in which space is reserved.

/// Size of a block in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Size in bytes of the blocks that a write of `length` bytes at `offset` touches.
pub fn block_bytes(offset: u64, length: u64) -> u64 {
    if length == 0 {
        return 0;
    }
    ((offset + length - 1) / BLOCK_BYTES - offset / BLOCK_BYTES + 1) * BLOCK_BYTES
}
