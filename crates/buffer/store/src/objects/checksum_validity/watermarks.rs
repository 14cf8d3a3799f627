//! Durable record of the checksum generations that are valid after a power failure, in a file next
//! to the objects.

use std::io;
use std::path::Path;

/// Name of the file, in the directory of all objects.
pub const WATERMARK_FILE: &str = "checksum-watermarks";
const MAGIC: &[u8; 8] = b"FBAYSEA1";
/// Boots that are remembered. Older checksums become invalid.
const MAX_BOOTS: usize = 4096;
const ENTRY_BYTES: usize = 16 + 8;

/// The last valid generation of each boot, in order of the boots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watermarks(Vec<(u128, u64)>);

impl Watermarks {
    /// Read the file. If it is missing or damaged, no earlier checksums are valid; a read error is
    /// returned, since a later attempt may succeed.
    pub fn load(path: &Path) -> io::Result<Watermarks> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Watermarks::decode(&bytes).unwrap_or_else(|error| {
                let path = path.display();
                tracing::warn!(%path, %error, "checksums from earlier boots are ignored");
                Watermarks::default()
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Watermarks::default()),
            Err(error) => Err(error),
        }
    }

    /// The last valid generation of a boot; 0 if none is valid.
    pub fn last_durable_generation(&self, boot: u128) -> u64 {
        let known = self.0.iter().rev().find(|(known, _)| *known == boot);
        known.map_or(0, |(_, generation)| *generation)
    }

    /// Generations of this boot up to `generation` are valid. May drop the oldest boot.
    pub fn set_last_durable_generation(&mut self, boot: u128, generation: u64) {
        assert!(generation > 0, "generations begin with 1");
        match self.0.iter_mut().find(|(known, _)| *known == boot) {
            Some((_, known)) => {
                assert!(generation >= *known, "watermarks never decrease");
                *known = generation;
            }
            None => {
                self.0.push((boot, generation));
                let surplus = self.0.len().saturating_sub(MAX_BOOTS);
                self.0.drain(..surplus);
            }
        }
    }

    /// Encode for storage.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for (boot, generation) in &self.0 {
            out.extend_from_slice(&boot.to_le_bytes());
            out.extend_from_slice(&generation.to_le_bytes());
        }
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decode the output of [`encode`](Watermarks::encode); an error if it is damaged.
    pub fn decode(bytes: &[u8]) -> io::Result<Watermarks> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let entries = body.strip_prefix(MAGIC).ok_or_else(damaged)?;
        if !entries.len().is_multiple_of(ENTRY_BYTES) {
            return Err(damaged());
        }
        let read_entry = |entry: &[u8]| {
            let (boot, generation) = entry.split_first_chunk::<16>()?;
            let generation = generation.first_chunk::<8>()?;
            Some((u128::from_le_bytes(*boot), u64::from_le_bytes(*generation)))
        };
        let entries = entries.chunks_exact(ENTRY_BYTES).map(read_entry);
        entries.collect::<Option<_>>().map(Watermarks).ok_or_else(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_round_trip_and_damage_is_detected() {
        let mut watermarks = Watermarks::default();
        let decoded = Watermarks::decode(&watermarks.encode()).unwrap();
        assert_eq!(decoded, watermarks);
        watermarks.set_last_durable_generation(7, 3);
        watermarks.set_last_durable_generation(9, 1);
        watermarks.set_last_durable_generation(7, 4);
        let last = |boot| watermarks.last_durable_generation(boot);
        assert_eq!((last(7), last(9), last(8)), (4, 1, 0));
        let bytes = watermarks.encode();
        assert_eq!(Watermarks::decode(&bytes).unwrap(), watermarks);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Watermarks::decode(&changed).is_err(), "byte {at}");
            assert!(Watermarks::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn oldest_boots_are_dropped_beyond_the_limit() {
        let mut watermarks = Watermarks::default();
        for boot in 1..=MAX_BOOTS as u128 + 2 {
            watermarks.set_last_durable_generation(boot, 5);
        }
        let last = |boot| watermarks.last_durable_generation(boot);
        assert_eq!((last(2), last(3)), (0, 5));
        assert_eq!(last(MAX_BOOTS as u128 + 2), 5);
    }
}
