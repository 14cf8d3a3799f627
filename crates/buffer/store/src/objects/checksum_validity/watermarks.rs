//! The durable record of which seals hold over a power cut, in a file beside the objects.

use std::io;

/// The file's name, in the directory of all objects.
pub const WATERMARK_FILE: &str = "seals";
const MAGIC: &[u8; 8] = b"FBAYSEA1";
/// Starts of the host that are kept in mind. Data not written since longer count as unchecked.
const MOST: usize = 4096;
const ENTRY: usize = 16 + 8;

/// For each start of the host the last generation of seals that hold, in order of the starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watermarks(Vec<(u128, u64)>);

impl Watermarks {
    /// The last generation of a start whose seals hold; 0 if none do.
    pub fn last_durable_generation(&self, boot: u128) -> u64 {
        let known = self.0.iter().rev().find(|(known, _)| *known == boot);
        known.map_or(0, |(_, generation)| *generation)
    }

    /// Seals of this start hold up to this generation. The longest known start may be forgotten.
    pub fn set_last_durable_generation(&mut self, boot: u128, generation: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == boot) {
            Some((_, known)) => *known = generation,
            None => {
                self.0.push((boot, generation));
                let superfluous = self.0.len().saturating_sub(MOST);
                self.0.drain(..superfluous);
            }
        }
    }

    /// As it is kept in the file.
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

    /// What [`encode`](Marks::encode) made; an error if it is not whole.
    pub fn decode(bytes: &[u8]) -> io::Result<Watermarks> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let entries = body.strip_prefix(MAGIC).ok_or_else(damaged)?;
        if !entries.len().is_multiple_of(ENTRY) {
            return Err(damaged());
        }
        let read = |entry: &[u8]| {
            let (boot, generation) = entry.split_first_chunk::<16>()?;
            let generation = generation.first_chunk::<8>()?;
            Some((u128::from_le_bytes(*boot), u64::from_le_bytes(*generation)))
        };
        let entries = entries.chunks_exact(ENTRY).map(read);
        entries
            .collect::<Option<_>>()
            .map(Watermarks)
            .ok_or_else(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back_and_damage_is_noticed() {
        let mut marks = Watermarks::default();
        assert_eq!(Watermarks::decode(&marks.encode()).unwrap(), marks);
        marks.set_last_durable_generation(7, 3);
        marks.set_last_durable_generation(9, 1);
        marks.set_last_durable_generation(7, 4);
        assert_eq!(
            (
                marks.last_durable_generation(7),
                marks.last_durable_generation(9),
                marks.last_durable_generation(8)
            ),
            (4, 1, 0)
        );
        let bytes = marks.encode();
        assert_eq!(Watermarks::decode(&bytes).unwrap(), marks);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Watermarks::decode(&changed).is_err(), "byte {at}");
            assert!(Watermarks::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn the_longest_known_starts_are_forgotten() {
        let mut marks = Watermarks::default();
        for boot in 1..=MOST as u128 + 2 {
            marks.set_last_durable_generation(boot, 5);
        }
        assert_eq!(
            (
                marks.last_durable_generation(2),
                marks.last_durable_generation(3)
            ),
            (0, 5)
        );
        assert_eq!(marks.last_durable_generation(MOST as u128 + 2), 5);
    }
}
