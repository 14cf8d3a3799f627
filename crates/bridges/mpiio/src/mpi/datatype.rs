//! Datatypes of MPI, decoded into trees.

use super::communicator::check;
use super::constructor::{Combiner, Contents, contents, envelope, natural, unsupported};
use super::{Flavour, Handle, MpiError, functions, library};
use forebay_mpiio_log::{Block, Datatype, Field};
use std::sync::Arc;

/// Longest name of a datatype, with its NUL.
const NAME_LENGTH: usize = 256;
/// Most levels of nested constructors.
const DEPTH: usize = 48;

/// Bytes of data of a datatype.
pub fn size(datatype: Handle) -> Result<u64, MpiError> {
    let mut size = 0;
    // SAFETY: the MPI library checks the handle.
    check(unsafe { functions::type_size_x(datatype, &mut size) })?;
    u64::try_from(size).map_err(|_| MpiError(library().error_argument))
}

/// Lower bound and extent in bytes.
fn extent(datatype: Handle) -> Result<(i64, i64), MpiError> {
    let (mut lower_bound, mut extent) = (0, 0);
    // SAFETY: the MPI library checks the handle.
    check(unsafe { functions::type_get_extent_x(datatype, &mut lower_bound, &mut extent) })?;
    Ok((lower_bound, extent))
}

/// The tree of a datatype. Its extent is explicit where alignment may have changed it.
pub fn decode(datatype: Handle) -> Result<Datatype, MpiError> {
    decode_within(datatype, DEPTH)
}

fn decode_within(datatype: Handle, depth: usize) -> Result<Datatype, MpiError> {
    let depth = depth.checked_sub(1).ok_or(unsupported())?;
    let envelope = envelope(datatype)?;
    if envelope.combiner == Combiner::Named {
        return named(datatype);
    }
    let contents = contents(datatype, &envelope)?;
    let tree = match envelope.combiner {
        Combiner::Subarray => subarray(&contents, depth)?,
        Combiner::Darray => darray(&contents, depth)?,
        Combiner::Struct => structure(&contents, depth)?,
        Combiner::Named
        | Combiner::Dup
        | Combiner::Contiguous
        | Combiner::Vector
        | Combiner::HVector
        | Combiner::Indexed
        | Combiner::HIndexed
        | Combiner::IndexedBlock
        | Combiner::HIndexedBlock
        | Combiner::Resized => repeated(envelope.combiner, &contents, depth)?,
    };
    let (lower_bound, extent) = extent(datatype)?;
    let bounds = tree.bounds().map_err(|_| unsupported())?;
    if bounds.lower == lower_bound && bounds.extent() == extent {
        return Ok(tree);
    }
    Ok(Datatype::Resized { lower_bound, extent, element: Arc::new(tree) })
}

/// A predefined type. Of those with a hole only that of a short and an int has it between its parts.
fn named(datatype: Handle) -> Result<Datatype, MpiError> {
    let size = size(datatype)?;
    let (lower_bound, extent) = extent(datatype)?;
    if lower_bound == 0 && extent == size as i64 {
        return Ok(Datatype::Bytes(size));
    }
    let mut name = [0u8; NAME_LENGTH];
    let mut length = 0;
    // SAFETY: names of both MPI libraries are shorter than the buffer.
    check(unsafe { functions::type_get_name(datatype, name.as_mut_ptr().cast(), &mut length) })?;
    let element = if name.starts_with(b"MPI_SHORT_INT\0") {
        let part = |displacement, bytes| Field {
            displacement,
            count: 1,
            datatype: Datatype::Bytes(bytes),
        };
        Datatype::Struct { fields: vec![part(0, 2), part(4, 4)] }
    } else {
        Datatype::Bytes(size)
    };
    Ok(Datatype::Resized { lower_bound, extent, element: Arc::new(element) })
}

/// A constructor whose arguments are numbers and one datatype. In the order of integers and
/// addresses, or of large counts, they are the same.
fn repeated(combiner: Combiner, contents: &Contents, depth: usize) -> Result<Datatype, MpiError> {
    let inner = contents.datatypes.first().ok_or(unsupported())?;
    let element = Arc::new(decode_within(inner.handle, depth)?);
    let (_, extent) = extent(inner.handle)?;
    let numbers = contents.numbers();
    let number = |index: usize| numbers.get(index).copied().ok_or(unsupported());
    let count = |index: usize| number(index).and_then(natural);
    let blocks =
        |lengths: usize, displacements: usize, unit: i64| -> Result<Vec<Block>, MpiError> {
            let count = count(0)? as usize;
            (0..count)
                .map(|index| {
                    let length = natural(number(lengths + index)?)?;
                    let displacement = number(displacements + index)?.checked_mul(unit);
                    Ok(Block { displacement: displacement.ok_or(unsupported())?, length })
                })
                .collect()
        };
    let equal_blocks = |unit: i64| -> Result<Vec<Block>, MpiError> {
        let length = count(1)?;
        let displacements = numbers.get(2..).unwrap_or_default();
        let place = |at: &i64| at.checked_mul(unit).ok_or(unsupported());
        displacements.iter().map(|at| Ok(Block { displacement: place(at)?, length })).collect()
    };
    let total = |count: u64| count as usize;
    Ok(match combiner {
        Combiner::Contiguous => Datatype::Contiguous { count: count(0)?, element },
        Combiner::Vector => {
            let stride = number(2)?.checked_mul(extent).ok_or(unsupported())?;
            Datatype::Vector { count: count(0)?, block: count(1)?, stride, element }
        }
        Combiner::HVector => {
            Datatype::Vector { count: count(0)?, block: count(1)?, stride: number(2)?, element }
        }
        Combiner::Indexed => {
            Datatype::Indexed { blocks: blocks(1, 1 + total(count(0)?), extent)?, element }
        }
        Combiner::HIndexed => {
            Datatype::Indexed { blocks: blocks(1, 1 + total(count(0)?), 1)?, element }
        }
        Combiner::IndexedBlock => Datatype::Indexed { blocks: equal_blocks(extent)?, element },
        Combiner::HIndexedBlock => Datatype::Indexed { blocks: equal_blocks(1)?, element },
        Combiner::Resized => {
            Datatype::Resized { lower_bound: number(0)?, extent: number(1)?, element }
        }
        Combiner::Named
        | Combiner::Dup
        | Combiner::Struct
        | Combiner::Subarray
        | Combiner::Darray => (*element).clone(),
    })
}

/// Arguments: count, lengths, displacements in bytes, and a datatype for each block.
fn structure(contents: &Contents, depth: usize) -> Result<Datatype, MpiError> {
    let numbers = contents.numbers();
    let count = contents.datatypes.len();
    let number = |index: usize| numbers.get(index).copied().ok_or(unsupported());
    let fields = contents.datatypes.iter().enumerate().map(|(index, inner)| {
        Ok(Field {
            displacement: number(1 + count + index)?,
            count: natural(number(1 + index)?)?,
            datatype: decode_within(inner.handle, depth)?,
        })
    });
    Ok(Datatype::Struct { fields: fields.collect::<Result<_, MpiError>>()? })
}

/// One dimension of an array.
#[derive(Clone, Copy)]
struct Dimension {
    size: u64,
    count: u64,
    start: u64,
}

/// Whether an order argument is `MPI_ORDER_FORTRAN`.
fn is_fortran(order: i64) -> bool {
    match library().flavour {
        Flavour::OpenMpi => order == 1,
        Flavour::Mpich => order == 57,
    }
}

/// Arguments: number of dimensions; sizes, counts and starts of them; order.
fn subarray(contents: &Contents, depth: usize) -> Result<Datatype, MpiError> {
    let inner = contents.datatypes.first().ok_or(unsupported())?;
    let integer = |index: usize| contents.integers.get(index).copied().ok_or(unsupported());
    let dimensions = natural(integer(0)?)? as usize;
    let (numbers, order) = if contents.large_counts.is_empty() {
        (contents.integers.get(1..).unwrap_or_default(), integer(1 + 3 * dimensions)?)
    } else {
        (contents.large_counts.as_slice(), integer(1)?)
    };
    let number = |index: usize| numbers.get(index).copied().ok_or(unsupported()).and_then(natural);
    let mut array = Vec::with_capacity(dimensions);
    for index in 0..dimensions {
        array.push(Dimension {
            size: number(index)?,
            count: number(dimensions + index)?,
            start: number(2 * dimensions + index)?,
        });
    }
    if !is_fortran(order) {
        array.reverse();
    }
    let mut part = decode_within(inner.handle, depth)?;
    let (_, mut stride) = extent(inner.handle)?;
    let mut start = 0;
    for dimension in array {
        let element = Arc::new(part);
        part = Datatype::Vector { count: dimension.count, block: 1, stride, element };
        start += stride * dimension.start as i64;
        stride *= dimension.size as i64;
    }
    let fields = vec![Field { displacement: start, count: 1, datatype: part }];
    let element = Arc::new(Datatype::Struct { fields });
    Ok(Datatype::Resized { lower_bound: 0, extent: stride, element })
}

/// Arguments of `MPI_Type_create_darray` for one dimension.
struct Distribution {
    size: i64,
    kind: i64,
    argument: i64,
    processes: i64,
    coordinate: i64,
}

impl Distribution {
    /// The blocks of this process: first elements and lengths.
    fn blocks(&self) -> Result<Vec<(i64, u64)>, MpiError> {
        let (block, cyclic, none, default) = match library().flavour {
            Flavour::OpenMpi => (0, 1, 2, -1),
            Flavour::Mpich => (121, 122, 123, -49767),
        };
        let length = match self.kind {
            kind if kind == none => return Ok(vec![(0, natural(self.size)?)]),
            kind if kind == block && self.argument == default => {
                (self.size + self.processes - 1) / self.processes
            }
            kind if kind == cyclic && self.argument == default => 1,
            kind if kind == block || kind == cyclic => self.argument,
            _ => return Err(unsupported()),
        };
        if length <= 0 {
            return Err(unsupported());
        }
        let mut blocks = Vec::new();
        let mut first = self.coordinate * length;
        while first < self.size {
            blocks.push((first, natural(length.min(self.size - first))?));
            if self.kind == block {
                break;
            }
            first += self.processes * length;
        }
        Ok(blocks)
    }
}

/// Arguments: size and rank of the group, number of dimensions; sizes, distributions, their
/// arguments and numbers of processes for each dimension; order.
fn darray(contents: &Contents, depth: usize) -> Result<Datatype, MpiError> {
    let inner = contents.datatypes.first().ok_or(unsupported())?;
    let integer = |index: usize| contents.integers.get(index).copied().ok_or(unsupported());
    let dimensions = natural(integer(2)?)? as usize;
    // With large counts the sizes are those, and the integers go on with the distributions.
    let large = !contents.large_counts.is_empty();
    let after_sizes = if large { 3 } else { 3 + dimensions };
    let argument = |group: usize, index: usize| integer(after_sizes + group * dimensions + index);
    let order = integer(after_sizes + 3 * dimensions)?;
    let mut rank = integer(1)?;
    let mut array = Vec::with_capacity(dimensions);
    // Processes are in the order of C whatever the order of the array.
    for index in (0..dimensions).rev() {
        let processes = argument(2, index)?.max(1);
        let size = if large {
            contents.large_counts.get(index).copied().ok_or(unsupported())?
        } else {
            integer(3 + index)?
        };
        array.push(Distribution {
            size,
            kind: argument(0, index)?,
            argument: argument(1, index)?,
            processes,
            coordinate: rank % processes,
        });
        rank /= processes;
    }
    if is_fortran(order) {
        array.reverse();
    }
    let mut part = decode_within(inner.handle, depth)?;
    let (_, mut stride) = extent(inner.handle)?;
    for dimension in array {
        let element =
            Arc::new(Datatype::Resized { lower_bound: 0, extent: stride, element: Arc::new(part) });
        let blocks = dimension.blocks()?;
        let place = |(first, length): (i64, u64)| Block { displacement: first * stride, length };
        part = Datatype::Indexed { blocks: blocks.into_iter().map(place).collect(), element };
        stride *= dimension.size;
    }
    Ok(Datatype::Resized { lower_bound: 0, extent: stride, element: Arc::new(part) })
}
