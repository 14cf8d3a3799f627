//! Names of files.

use crate::error::LogError;
use crate::fields::Fields;
use crate::header::Header;
use crate::region::Region;
use std::collections::HashMap;
use std::io::{Read, Seek};

/// The names of files by the ids of their records.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: HashMap<u64, String>,
}

/// Most bytes of a name.
const LONGEST_NAME: usize = 64 << 10;
/// Most bytes of all names.
const MOST_BYTES: usize = 256 << 20;
/// Most names: short ones cost more memory than their bytes.
const MOST_NAMES: usize = 8 << 20;

impl Names {
    /// The name of a record; Darshan leaves names out for privacy, or when its memory is full.
    pub fn get(&self, id: u64) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All names.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        self.names.iter().map(|(id, name)| (*id, name.as_str()))
    }

    pub(crate) fn read<R: Read + Seek>(
        region: &mut Region<'_, R>,
        header: &Header,
    ) -> Result<Names, LogError> {
        let mut input = Input { region, buffer: Vec::new(), begin: 0 };
        let mut names = Names::default();
        let mut total = 0;
        let has_lengths = header.version.minor == 0;
        loop {
            let mut id = [0; 8];
            if !input.read(&mut id)? {
                return Ok(names);
            }
            let id = Fields::new(&id, header.order).u64();
            let name = match has_lengths {
                true => input.name_with_length(header)?,
                false => input.name_to_nul()?,
            };
            total += name.len();
            if total > MOST_BYTES || names.names.len() >= MOST_NAMES {
                return Err(input.region.error(format!(
                    "more than {MOST_NAMES} names or {MOST_BYTES} bytes of names: too many"
                )));
            }
            // Of an id that is recorded twice the first name counts, unless it is empty.
            let known = names.names.entry(id).or_default();
            if known.is_empty() {
                *known = name;
            }
        }
    }
}

/// The data of the region with a buffer, in which names end anywhere.
struct Input<'a, 'b, R> {
    region: &'a mut Region<'b, R>,
    buffer: Vec<u8>,
    begin: usize,
}

impl<R: Read + Seek> Input<'_, '_, R> {
    fn fill(&mut self) -> Result<bool, LogError> {
        const BYTES: usize = 64 << 10;
        self.buffer.resize(BYTES, 0);
        let count = self.region.read(&mut self.buffer)?;
        self.buffer.truncate(count);
        self.begin = 0;
        Ok(count > 0)
    }

    /// Fills `out`; `false` at the end of the region.
    fn read(&mut self, out: &mut [u8]) -> Result<bool, LogError> {
        let mut filled = 0;
        while filled < out.len() {
            if self.begin == self.buffer.len() && !self.fill()? {
                if filled == 0 {
                    return Ok(false);
                }
                return Err(self.region.error("ends within a name"));
            }
            let count = (out.len() - filled).min(self.buffer.len() - self.begin);
            out[filled..filled + count]
                .copy_from_slice(&self.buffer[self.begin..self.begin + count]);
            filled += count;
            self.begin += count;
        }
        Ok(true)
    }

    /// A name behind its length (format 3.00).
    fn name_with_length(&mut self, header: &Header) -> Result<String, LogError> {
        let mut length = [0; 4];
        let is_complete = self.read(&mut length)?;
        let length = Fields::new(&length, header.order).u32() as usize;
        if !is_complete || length > LONGEST_NAME {
            let problem = format!("a name of {length} bytes; at most {LONGEST_NAME} are possible");
            return Err(self.region.error(problem));
        }
        let mut name = vec![0; length];
        if length > 0 && !self.read(&mut name)? {
            return Err(self.region.error("ends within a name"));
        }
        Ok(crate::fields::text(&name))
    }

    /// A name that a NUL ends.
    fn name_to_nul(&mut self) -> Result<String, LogError> {
        let mut name = Vec::new();
        loop {
            if self.begin == self.buffer.len() && !self.fill()? {
                return Err(self.region.error("ends within a name"));
            }
            let rest = &self.buffer[self.begin..];
            let end = rest.iter().position(|byte| *byte == 0);
            let part = &rest[..end.unwrap_or(rest.len())];
            if name.len() + part.len() > LONGEST_NAME {
                let problem = format!("a name of more than {LONGEST_NAME} bytes");
                return Err(self.region.error(problem));
            }
            name.extend_from_slice(part);
            self.begin += part.len() + usize::from(end.is_some());
            if end.is_some() {
                return Ok(String::from_utf8_lossy(&name).into_owned());
            }
        }
    }
}
