//! Views as bytes: numbers in little-endian groups of seven bits, signed ones folded (zigzag), the
//! displacements of blocks as differences.

use crate::datatype::{Block, Datatype, Field, InvalidDatatype, MAX_DEPTH};
use std::fmt;
use std::sync::Arc;

/// Rejection of an encoded view or entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end too early.
    Truncated,
    /// A number or a kind of datatype has no meaning.
    Malformed,
    /// Bytes follow the end.
    Trailing,
    /// The datatype is not valid.
    Datatype(InvalidDatatype),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("the encoding ends too early"),
            DecodeError::Malformed => f.write_str("the encoding is malformed"),
            DecodeError::Trailing => f.write_str("bytes follow the end of the encoding"),
            DecodeError::Datatype(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<InvalidDatatype> for DecodeError {
    fn from(error: InvalidDatatype) -> DecodeError {
        DecodeError::Datatype(error)
    }
}

/// Kinds of datatypes in the encoding.
mod kind {
    pub(super) const BYTES: u64 = 0;
    pub(super) const CONTIGUOUS: u64 = 1;
    pub(super) const VECTOR: u64 = 2;
    pub(super) const INDEXED: u64 = 3;
    pub(super) const STRUCT: u64 = 4;
    pub(super) const RESIZED: u64 = 5;
}

/// Appends a number.
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_number(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a datatype.
pub(crate) fn put_datatype(out: &mut Vec<u8>, datatype: &Datatype) {
    match datatype {
        Datatype::Bytes(length) => {
            put_number(out, kind::BYTES);
            put_number(out, *length);
        }
        Datatype::Contiguous { count, element } => {
            put_number(out, kind::CONTIGUOUS);
            put_number(out, *count);
            put_datatype(out, element);
        }
        Datatype::Vector { count, block, stride, element } => {
            put_number(out, kind::VECTOR);
            put_number(out, *count);
            put_number(out, *block);
            put_signed(out, *stride);
            put_datatype(out, element);
        }
        Datatype::Indexed { blocks, element } => {
            put_number(out, kind::INDEXED);
            put_number(out, blocks.len() as u64);
            let mut before = 0;
            for block in blocks {
                put_signed(out, block.displacement.wrapping_sub(before));
                put_number(out, block.length);
                before = block.displacement;
            }
            put_datatype(out, element);
        }
        Datatype::Struct { fields } => {
            put_number(out, kind::STRUCT);
            put_number(out, fields.len() as u64);
            for field in fields {
                put_signed(out, field.displacement);
                put_number(out, field.count);
                put_datatype(out, &field.datatype);
            }
        }
        Datatype::Resized { lower_bound, extent, element } => {
            put_number(out, kind::RESIZED);
            put_signed(out, *lower_bound);
            put_signed(out, *extent);
            put_datatype(out, element);
        }
    }
}

/// Bytes that are decoded from their start.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    /// Nodes of datatypes that are still allowed.
    nodes: u64,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder::limited(bytes, u64::MAX)
    }

    /// A decoder that refuses more than so many nodes of datatypes.
    pub fn limited(bytes: &'a [u8], nodes: u64) -> Decoder<'a> {
        Decoder { rest: bytes, nodes }
    }

    /// Checks that all bytes were decoded.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }

    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Malformed);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed)
    }

    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let folded = self.number()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    /// A number of items of at least `least` bytes each.
    pub fn count(&mut self, least: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.number()?).map_err(|_| DecodeError::Malformed)?;
        if count > self.rest.len() / least { Err(DecodeError::Truncated) } else { Ok(count) }
    }

    pub fn datatype(&mut self) -> Result<Datatype, DecodeError> {
        self.datatype_within(MAX_DEPTH)
    }

    fn datatype_within(&mut self, depth: usize) -> Result<Datatype, DecodeError> {
        let depth = depth.checked_sub(1).ok_or(InvalidDatatype::TooDeep)?;
        self.nodes = self.nodes.checked_sub(1).ok_or(InvalidDatatype::TooManyParts)?;
        match self.number()? {
            kind::BYTES => Ok(Datatype::Bytes(self.number()?)),
            kind::CONTIGUOUS => {
                let count = self.number()?;
                let element = Arc::new(self.datatype_within(depth)?);
                Ok(Datatype::Contiguous { count, element })
            }
            kind::VECTOR => {
                let (count, block, stride) = (self.number()?, self.number()?, self.signed()?);
                let element = Arc::new(self.datatype_within(depth)?);
                Ok(Datatype::Vector { count, block, stride, element })
            }
            kind::INDEXED => {
                let count = self.count(2)?;
                let mut blocks = Vec::with_capacity(count);
                let mut displacement: i64 = 0;
                for _ in 0..count {
                    displacement = displacement.wrapping_add(self.signed()?);
                    blocks.push(Block { displacement, length: self.number()? });
                }
                Ok(Datatype::Indexed { blocks, element: Arc::new(self.datatype_within(depth)?) })
            }
            kind::STRUCT => {
                let count = self.count(4)?;
                // The nodes may be less than the bytes allow.
                let mut fields = Vec::new();
                for _ in 0..count {
                    let (displacement, count) = (self.signed()?, self.number()?);
                    let datatype = self.datatype_within(depth)?;
                    fields.push(Field { displacement, count, datatype });
                }
                Ok(Datatype::Struct { fields })
            }
            kind::RESIZED => {
                let (lower_bound, extent) = (self.signed()?, self.signed()?);
                let element = Arc::new(self.datatype_within(depth)?);
                Ok(Datatype::Resized { lower_bound, extent, element })
            }
            _ => Err(DecodeError::Malformed),
        }
    }
}
