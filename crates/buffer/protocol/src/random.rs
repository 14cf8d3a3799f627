//! Random bytes, and bytes derived from a secret.

use std::io;

/// 32 random bytes.
pub fn random_nonce() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// 16 bytes that follow from `key` and `number` and tell nothing about either.
pub fn keyed_block(key: &[u8; 32], number: u128) -> [u8; 16] {
    let mut block = [0; 16];
    block.copy_from_slice(&blake3::keyed_hash(key, &number.to_le_bytes()).as_bytes()[..16]);
    block
}

/// Fill `bytes` from the kernel's random source.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    use std::io::Read;
    std::fs::File::open("/dev/urandom")?.read_exact(bytes)
}
