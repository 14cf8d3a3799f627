//! The header of NetCDF's classic formats: CDF-1, CDF-2 and CDF-5.
//!
//! All numbers are big-endian. Counts and lengths have 4 bytes, in CDF-5 8; offsets have 4 bytes in
//! CDF-1, else 8. A list is a tag, a count and its items, or zeros.

/// A variable of a NetCDF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Type of the elements, as CDL names it.
    pub datatype: &'static str,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Lengths of its dimensions, the slowest first; of a record variable without the record
    /// dimension.
    pub shape: Vec<u64>,
    /// Whether a record of it is added for each step of the unlimited dimension.
    pub is_record: bool,
    /// Offset of its data, or of its first record.
    pub begin: u64,
    /// Bytes of its data, or of a record, without padding.
    pub bytes: u64,
}

/// Bytes that are parsed from their start.
struct Parser<'a> {
    rest: &'a [u8],
    version: u8,
}

/// Tags of lists.
const DIMENSIONS: u64 = 0x0a;
const VARIABLES: u64 = 0x0b;
const ATTRIBUTES: u64 = 0x0c;

impl<'a> Parser<'a> {
    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(bytes)
    }

    fn number(&mut self, bytes: u64) -> Option<u64> {
        Some(self.bytes(bytes)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// A tag or a type.
    fn word(&mut self) -> Option<u64> {
        self.number(4)
    }

    /// A count or a length.
    fn count(&mut self) -> Option<u64> {
        self.number(if self.version == 5 { 8 } else { 4 })
    }

    /// Bytes padded to a multiple of 4.
    fn padded(&mut self, length: u64) -> Option<&'a [u8]> {
        let bytes = self.bytes(length)?;
        self.bytes(length.checked_next_multiple_of(4)? - length)?;
        Some(bytes)
    }

    fn name(&mut self) -> Option<String> {
        let length = self.count()?;
        Some(String::from_utf8_lossy(self.padded(length)?).into_owned())
    }

    /// The number of items of a list.
    fn list(&mut self, tag: u64) -> Option<u64> {
        let (found, count) = (self.word()?, self.count()?);
        (found == tag || (found, count) == (0, 0)).then_some(count)
    }

    fn skip_attributes(&mut self) -> Option<()> {
        for _ in 0..self.list(ATTRIBUTES)? {
            self.name()?;
            let (_, size) = datatype(self.word()?)?;
            let count = self.count()?;
            self.padded(count.checked_mul(size)?)?;
        }
        Some(())
    }

    fn variable(&mut self, dimensions: &[u64]) -> Option<Variable> {
        let name = self.name()?;
        let mut shape = Vec::new();
        for _ in 0..self.count()? {
            let dimension = usize::try_from(self.count()?).ok()?;
            shape.push(*dimensions.get(dimension)?);
        }
        self.skip_attributes()?;
        let (datatype, element_bytes) = datatype(self.word()?)?;
        // The size of the data in the header overflows for large variables; it follows from the shape.
        self.count()?;
        let begin = self.number(if self.version == 1 { 4 } else { 8 })?;
        let is_record = shape.first() == Some(&0);
        if is_record {
            shape.remove(0);
        }
        let bytes =
            shape.iter().try_fold(element_bytes, |bytes, length| bytes.checked_mul(*length))?;
        Some(Variable { name, datatype, element_bytes, shape, is_record, begin, bytes })
    }
}

/// Name and size of a type.
fn datatype(number: u64) -> Option<(&'static str, u64)> {
    Some(match number {
        1 => ("byte", 1),
        2 => ("char", 1),
        3 => ("short", 2),
        4 => ("int", 4),
        5 => ("float", 4),
        6 => ("double", 8),
        7 => ("ubyte", 1),
        8 => ("ushort", 2),
        9 => ("uint", 4),
        10 => ("int64", 8),
        11 => ("uint64", 8),
        _ => return None,
    })
}

/// The variables of a file that begins with `bytes`; `None` if that is no complete header.
pub(super) fn parse(bytes: &[u8]) -> Option<Vec<Variable>> {
    let (magic, rest) = bytes.split_at_checked(4)?;
    let version = match magic {
        [b'C', b'D', b'F', version @ (1 | 2 | 5)] => *version,
        _ => return None,
    };
    let mut parser = Parser { rest, version };
    parser.count()?;
    let mut dimensions = Vec::new();
    for _ in 0..parser.list(DIMENSIONS)? {
        parser.name()?;
        dimensions.push(parser.count()?);
    }
    parser.skip_attributes()?;
    let mut variables = Vec::new();
    for _ in 0..parser.list(VARIABLES)? {
        variables.push(parser.variable(&dimensions)?);
    }
    Some(variables)
}
