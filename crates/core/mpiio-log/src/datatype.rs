//! Datatypes of MPI as trees, without their basic types: only bytes and their places count.

use std::fmt;
use std::sync::Arc;

/// Most levels of a datatype.
pub const MAX_DEPTH: usize = 64;

/// A datatype of MPI. Displacements, strides and bounds are in bytes, counts in elements.
///
/// `Resized` sets the lower bound and the extent explicitly; as in MPI, explicit bounds of a part
/// override the natural bounds of the parts beside it. The padding that MPI adds to the extent of
/// a structure for alignment is not added here: wrap the structure in `Resized`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datatype {
    /// A number of consecutive bytes: a basic type.
    Bytes(u64),
    /// Copies at a distance of the element's extent.
    Contiguous {
        /// Number of copies.
        count: u64,
        /// The repeated type.
        element: Arc<Datatype>,
    },
    /// Blocks at equal distances.
    Vector {
        /// Number of blocks.
        count: u64,
        /// Elements of a block.
        block: u64,
        /// Bytes from the start of a block to the start of the next.
        stride: i64,
        /// The repeated type.
        element: Arc<Datatype>,
    },
    /// Blocks at any places.
    Indexed {
        /// The blocks in the order of the data.
        blocks: Vec<Block>,
        /// The repeated type.
        element: Arc<Datatype>,
    },
    /// Parts of different types.
    Struct {
        /// The parts in the order of the data.
        fields: Vec<Field>,
    },
    /// A type with explicit bounds.
    Resized {
        /// Explicit lower bound.
        lower_bound: i64,
        /// Explicit extent.
        extent: i64,
        /// The type whose bounds are set.
        element: Arc<Datatype>,
    },
}

/// A block of [`Datatype::Indexed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Displacement of its first element in bytes.
    pub displacement: i64,
    /// Elements.
    pub length: u64,
}

/// A part of [`Datatype::Struct`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Displacement of its first element in bytes.
    pub displacement: i64,
    /// Elements.
    pub count: u64,
    /// Type of the elements.
    pub datatype: Datatype,
}

/// Rejection of a datatype or view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidDatatype {
    /// A size, displacement or bound exceeds 2^56 bytes.
    TooLarge,
    /// More than [`MAX_DEPTH`] levels.
    TooDeep,
    /// It has so many parts that it needs more memory than [`MAX_LOGGED_VIEW`](crate::MAX_LOGGED_VIEW).
    TooManyParts,
    /// The extent of a file type is negative, or zero although it contains data.
    BadExtent,
    /// A byte of the view lies before the start of the file.
    NegativeOffset,
}

impl fmt::Display for InvalidDatatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidDatatype::TooLarge => "the datatype exceeds 2^56 bytes",
            InvalidDatatype::TooDeep => "the datatype has more than 64 levels",
            InvalidDatatype::TooManyParts => "the datatype has too many parts for a log",
            InvalidDatatype::BadExtent => "the extent of the file type is not positive",
            InvalidDatatype::NegativeOffset => "the view begins before the start of the file",
        })
    }
}

impl std::error::Error for InvalidDatatype {}

/// Largest absolute value of sizes and displacements.
pub(crate) const LARGEST: i64 = 1 << 56;

/// A value within the limit, as bytes.
pub(crate) fn checked(value: i128) -> Result<i64, InvalidDatatype> {
    let value = i64::try_from(value).map_err(|_| InvalidDatatype::TooLarge)?;
    if value.abs() > LARGEST { Err(InvalidDatatype::TooLarge) } else { Ok(value) }
}

/// Bounds of a datatype in bytes; `lower` and `upper` are equal if it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lower bound.
    pub lower: i64,
    /// Upper bound: lower bound plus extent.
    pub upper: i64,
    /// The bounds were set by [`Datatype::Resized`].
    pub explicit: bool,
}

impl Bounds {
    /// The extent in bytes.
    pub fn extent(&self) -> i64 {
        self.upper - self.lower
    }

    /// Bounds of copies at the displacements from `first` to `last`, in any order.
    fn moved(self, first: i128, last: i128) -> Result<Bounds, InvalidDatatype> {
        let (low, high) = (first.min(last), first.max(last));
        Ok(Bounds {
            lower: checked(i128::from(self.lower) + low)?,
            upper: checked(i128::from(self.upper) + high)?,
            explicit: self.explicit,
        })
    }

    /// Bounds of two parts together.
    fn join(this: Option<Bounds>, other: Bounds) -> Bounds {
        match this {
            Some(this) if this.explicit && !other.explicit => this,
            Some(this) if this.explicit == other.explicit => Bounds {
                lower: this.lower.min(other.lower),
                upper: this.upper.max(other.upper),
                explicit: this.explicit,
            },
            Some(_) | None => other,
        }
    }
}

impl Datatype {
    /// An array of `sizes` elements of `element_bytes` bytes, of which the part of `counts`
    /// elements from `starts` on is selected. The last dimension is contiguous (order of C). The
    /// extent is that of the whole array.
    ///
    /// # Panics
    /// If the three slices have different lengths.
    pub fn subarray(
        sizes: &[u64],
        counts: &[u64],
        starts: &[u64],
        element_bytes: u64,
    ) -> Result<Datatype, InvalidDatatype> {
        assert!(sizes.len() == counts.len() && sizes.len() == starts.len());
        let mut part = Datatype::Bytes(element_bytes);
        let mut row = i128::from(element_bytes);
        let mut start = 0;
        for ((size, count), first) in sizes.iter().zip(counts).zip(starts).rev() {
            let (stride, element) = (checked(row)?, Arc::new(part));
            part = Datatype::Vector { count: *count, block: 1, stride, element };
            start = i128::from(checked(start + row * i128::from(*first))?);
            row = i128::from(checked(row * i128::from(*size))?);
        }
        let block = Field { displacement: checked(start)?, count: 1, datatype: part };
        let element = Arc::new(Datatype::Struct { fields: vec![block] });
        Ok(Datatype::Resized { lower_bound: 0, extent: checked(row)?, element })
    }

    /// Bytes of data.
    pub fn size(&self) -> Result<u64, InvalidDatatype> {
        self.size_within(MAX_DEPTH)
    }

    fn size_within(&self, depth: usize) -> Result<u64, InvalidDatatype> {
        let depth = depth.checked_sub(1).ok_or(InvalidDatatype::TooDeep)?;
        let size: i128 = match self {
            Datatype::Bytes(length) => i128::from(*length),
            Datatype::Contiguous { count, element } => product(*count, element, depth)?,
            Datatype::Vector { count, block, stride: _, element } => {
                let elements = checked(i128::from(*count) * i128::from(*block))?;
                product(elements.unsigned_abs(), element, depth)?
            }
            Datatype::Indexed { blocks, element } => {
                let elements: i128 = blocks.iter().map(|block| i128::from(block.length)).sum();
                product(checked(elements)?.unsigned_abs(), element, depth)?
            }
            Datatype::Struct { fields } => {
                let mut sum = 0;
                for field in fields {
                    sum = checked(sum + product(field.count, &field.datatype, depth)?)?.into();
                }
                sum
            }
            Datatype::Resized { element, .. } => element.size_within(depth)?.into(),
        };
        Ok(checked(size)?.unsigned_abs())
    }

    /// Lower and upper bound.
    pub fn bounds(&self) -> Result<Bounds, InvalidDatatype> {
        let empty = Bounds { lower: 0, upper: 0, explicit: false };
        Ok(self.bounds_within(MAX_DEPTH)?.unwrap_or(empty))
    }

    /// The bounds; `None` if the type has neither data nor explicit bounds.
    fn bounds_within(&self, depth: usize) -> Result<Option<Bounds>, InvalidDatatype> {
        let depth = depth.checked_sub(1).ok_or(InvalidDatatype::TooDeep)?;
        match self {
            Datatype::Bytes(0) => Ok(None),
            Datatype::Bytes(length) => {
                let upper = checked(i128::from(*length))?;
                Ok(Some(Bounds { lower: 0, upper, explicit: false }))
            }
            Datatype::Contiguous { count, element } => block_bounds(*count, element, depth),
            Datatype::Vector { count, block, stride, element } => {
                let Some(count) = count.checked_sub(1) else { return Ok(None) };
                let Some(bounds) = block_bounds(*block, element, depth)? else { return Ok(None) };
                Ok(Some(bounds.moved(0, i128::from(*stride) * i128::from(count))?))
            }
            Datatype::Indexed { blocks, element } => {
                let mut all = None;
                let Some(bounds) = element.bounds_within(depth)? else { return Ok(None) };
                for block in blocks.iter().filter(|block| block.length > 0) {
                    let at = i128::from(block.displacement);
                    let last = at + i128::from(block.length - 1) * i128::from(bounds.extent());
                    all = Some(Bounds::join(all, bounds.moved(at, last)?));
                }
                Ok(all)
            }
            Datatype::Struct { fields } => {
                let mut all = None;
                for field in fields {
                    if let Some(bounds) = block_bounds(field.count, &field.datatype, depth)? {
                        let at = i128::from(field.displacement);
                        all = Some(Bounds::join(all, bounds.moved(at, at)?));
                    }
                }
                Ok(all)
            }
            Datatype::Resized { lower_bound, extent, element } => {
                element.bounds_within(depth)?;
                let lower = checked(i128::from(*lower_bound))?;
                let upper = checked(i128::from(*lower_bound) + i128::from(*extent))?;
                Ok(Some(Bounds { lower, upper, explicit: true }))
            }
        }
    }
}

/// Size of `count` copies of `element`.
fn product(count: u64, element: &Datatype, depth: usize) -> Result<i128, InvalidDatatype> {
    Ok(checked(i128::from(count) * i128::from(element.size_within(depth)?))?.into())
}

/// Bounds of `count` consecutive copies of `element`.
fn block_bounds(
    count: u64,
    element: &Datatype,
    depth: usize,
) -> Result<Option<Bounds>, InvalidDatatype> {
    let bounds = element.bounds_within(depth)?;
    let (Some(last), Some(bounds)) = (count.checked_sub(1), bounds) else { return Ok(None) };
    Ok(Some(bounds.moved(0, i128::from(last) * i128::from(bounds.extent()))?))
}
