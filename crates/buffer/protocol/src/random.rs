//! Pseudorandom blocks from a secret.

/// A block of 16 bytes derived from `key` and `number`, from which neither can be computed.
pub fn keyed_block(key: &[u8; 32], number: u128) -> [u8; 16] {
    let mut block = [0; 16];
    block.copy_from_slice(&blake3::keyed_hash(key, &number.to_le_bytes()).as_bytes()[..16]);
    block
}
