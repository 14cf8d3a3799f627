//! The bytes of a datatype as loops over runs: sizes are known in advance and adjacent runs are one,
//! so that any byte is found in a number of steps that depends on the depth only.

use crate::datatype::{Block, Datatype, Field, InvalidDatatype, MAX_DEPTH, checked};
use std::sync::Arc;

/// A run of consecutive bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Displacement of its first byte.
    pub at: i64,
    /// Bytes.
    pub length: u64,
}

/// Bytes of a datatype, relative to its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeMap {
    loops: Loops,
    /// Added to all displacements of `loops`.
    at: i64,
    /// Bytes of data.
    size: u64,
    /// Displacement of the first byte, in the order of the file.
    low: i64,
    /// Displacement behind the last byte.
    high: i64,
    /// Displacements increase with the position in the data.
    ordered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Loops {
    /// One run.
    Run,
    /// Copies at equal distances.
    Repeat { stride: i64, element: Arc<TypeMap> },
    /// Runs at any displacements; `ends[i]` is the number of data bytes up to the end of run i.
    Runs { displacements: Box<[i64]>, ends: Box<[u64]> },
    /// Parts; `ends[i]` is the number of data bytes up to the end of part i.
    Parts { parts: Box<[TypeMap]>, ends: Box<[u64]> },
}

impl TypeMap {
    /// The bytes of a datatype.
    pub fn new(datatype: &Datatype) -> Result<TypeMap, InvalidDatatype> {
        datatype.size()?;
        datatype.bounds()?;
        build(datatype, MAX_DEPTH)
    }

    /// Bytes of data.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Displacement of the first byte in the order of the file.
    pub fn low(&self) -> i64 {
        self.low
    }

    /// Displacement behind the last byte in the order of the file.
    pub fn high(&self) -> i64 {
        self.high
    }

    /// Whether displacements increase with the position in the data, so that no byte occurs twice.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    fn run(at: i64, length: u64) -> Result<TypeMap, InvalidDatatype> {
        let high = checked(i128::from(at) + i128::from(length))?;
        Ok(TypeMap { loops: Loops::Run, at, size: length, low: at, high, ordered: true })
    }

    fn moved(mut self, by: i64) -> Result<TypeMap, InvalidDatatype> {
        self.at = checked(i128::from(self.at) + i128::from(by))?;
        self.low = checked(i128::from(self.low) + i128::from(by))?;
        self.high = checked(i128::from(self.high) + i128::from(by))?;
        Ok(self)
    }

    /// `count` copies at distances of `stride` bytes.
    fn repeat(self, count: u64, stride: i64) -> Result<TypeMap, InvalidDatatype> {
        if count == 0 || self.size == 0 {
            return TypeMap::run(0, 0);
        }
        if count == 1 {
            return Ok(self);
        }
        let size = checked(i128::from(count) * i128::from(self.size))?.unsigned_abs();
        match &self.loops {
            Loops::Run if i128::from(stride) == i128::from(self.size) => {
                return TypeMap::run(self.at, size);
            }
            // The copies continue the element's own loop.
            Loops::Repeat { stride: inner, element }
                if i128::from(stride)
                    == i128::from(*inner) * i128::from(self.size / element.size) =>
            {
                let all = size / element.size;
                let (inner, element, at) = (*inner, TypeMap::clone(element), self.at);
                return element.repeat(all, inner)?.moved(at);
            }
            Loops::Run | Loops::Repeat { .. } | Loops::Runs { .. } | Loops::Parts { .. } => {}
        }
        let far = i128::from(stride) * i128::from(count - 1);
        let low = checked(i128::from(self.low) + far.min(0))?;
        let high = checked(i128::from(self.high) + far.max(0))?;
        let ordered = self.ordered && stride >= self.high - self.low;
        let loops = Loops::Repeat { stride, element: Arc::new(self) };
        Ok(TypeMap { loops, at: 0, size, low, high, ordered })
    }

    /// Parts one after another in the order of the data.
    fn list(parts: Vec<TypeMap>) -> Result<TypeMap, InvalidDatatype> {
        let mut joined: Vec<TypeMap> = Vec::with_capacity(parts.len());
        for part in parts.into_iter().filter(|part| part.size > 0) {
            match joined.last_mut() {
                Some(last) if last.is_run() && part.is_run() && last.high == part.low => {
                    *last = TypeMap::run(last.at, last.size + part.size)?;
                }
                Some(_) | None => joined.push(part),
            }
        }
        let (Some(first), Some(last)) = (joined.first(), joined.last()) else {
            return TypeMap::run(0, 0);
        };
        if joined.len() == 1 {
            return Ok(joined.remove(0));
        }
        let low = joined.iter().map(|part| part.low).min().unwrap_or(first.low);
        let high = joined.iter().map(|part| part.high).max().unwrap_or(last.high);
        let ordered = joined.iter().all(|part| part.ordered)
            && joined.windows(2).all(|pair| pair[0].high <= pair[1].low);
        if let Some(stride) = equal_distance(&joined) {
            let count = joined.len() as u64;
            return joined.swap_remove(0).repeat(count, stride);
        }
        let mut size = 0;
        let mut ends = Vec::with_capacity(joined.len());
        for part in &joined {
            size = checked(i128::from(size) + i128::from(part.size))?.unsigned_abs();
            ends.push(size);
        }
        let ends = ends.into();
        let loops = if joined.iter().all(TypeMap::is_run) {
            Loops::Runs { displacements: joined.iter().map(|part| part.at).collect(), ends }
        } else {
            Loops::Parts { parts: joined.into(), ends }
        };
        Ok(TypeMap { loops, at: 0, size, low, high, ordered })
    }

    fn is_run(&self) -> bool {
        self.loops == Loops::Run
    }

    /// The rest of the run that contains data byte `position`, which is less than the size.
    pub fn locate(&self, position: u64) -> Run {
        self.locate_near(position, &mut 0)
    }

    /// As [`TypeMap::locate`]. `hint` is any number at first; with that of the last call, the run
    /// behind the last one is found at once.
    pub fn locate_near(&self, position: u64, hint: &mut usize) -> Run {
        assert!(position < self.size, "a position behind the data");
        let (mut map, mut base, mut position) = (self, 0, position);
        loop {
            base += map.at;
            match &map.loops {
                Loops::Run => {
                    let length = map.size - position;
                    return Run { at: base + position as i64, length };
                }
                Loops::Repeat { stride, element } => {
                    base += stride * (position / element.size) as i64;
                    position %= element.size;
                    map = element;
                }
                Loops::Runs { displacements, ends } => {
                    let index = index_near(ends, position, *hint);
                    *hint = index;
                    let start = index.checked_sub(1).map_or(0, |before| ends[before]);
                    let at = base + displacements[index] + (position - start) as i64;
                    return Run { at, length: ends[index] - position };
                }
                Loops::Parts { parts, ends } => {
                    let index = ends.partition_point(|end| *end <= position);
                    position -= index.checked_sub(1).map_or(0, |before| ends[before]);
                    map = &parts[index];
                }
            }
        }
    }

    /// Number of data bytes with displacements below `bound`.
    ///
    /// # Panics
    /// If the type is not ordered.
    pub fn bytes_below(&self, bound: i64) -> u64 {
        assert!(self.ordered, "bytes below a bound are contiguous only in an ordered type");
        if bound >= self.high {
            return self.size;
        }
        if bound <= self.low {
            return 0;
        }
        let bound = bound - self.at;
        match &self.loops {
            Loops::Run => bound.unsigned_abs(),
            Loops::Repeat { stride, element } => {
                let copies = self.size / element.size;
                let before = ((bound - element.low) / stride).unsigned_abs().min(copies - 1);
                before * element.size + element.bytes_below(bound - stride * before as i64)
            }
            Loops::Runs { displacements, ends } => {
                let index = displacements.partition_point(|at| *at < bound) - 1;
                let start = index.checked_sub(1).map_or(0, |before| ends[before]);
                let into = (bound - displacements[index]).unsigned_abs();
                (start + into).min(ends[index])
            }
            Loops::Parts { parts, ends } => {
                let index = parts.partition_point(|part| part.low < bound) - 1;
                let start = index.checked_sub(1).map_or(0, |before| ends[before]);
                start + parts[index].bytes_below(bound)
            }
        }
    }
}

/// The first index whose end lies behind `position`: often `hint` or the next one.
fn index_near(ends: &[u64], position: u64, hint: usize) -> usize {
    for index in [hint, hint.saturating_add(1)] {
        let start = index.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied());
        let (Some(start), Some(end)) = (start, ends.get(index)) else { break };
        if start <= position && position < *end {
            return index;
        }
    }
    ends.partition_point(|end| *end <= position)
}

/// The distance of parts that are equal and at equal distances.
fn equal_distance(parts: &[TypeMap]) -> Option<i64> {
    let (first, second) = (parts.first()?, parts.get(1)?);
    let stride = second.at - first.at;
    let regular = parts.windows(2).all(|pair| {
        pair[1].at - pair[0].at == stride
            && pair[1].size == pair[0].size
            && pair[1].loops == pair[0].loops
    });
    regular.then_some(stride)
}

fn build(datatype: &Datatype, depth: usize) -> Result<TypeMap, InvalidDatatype> {
    let depth = depth.checked_sub(1).ok_or(InvalidDatatype::TooDeep)?;
    match datatype {
        Datatype::Bytes(length) => TypeMap::run(0, *length),
        Datatype::Contiguous { count, element } => {
            build(element, depth)?.repeat(*count, element.bounds()?.extent())
        }
        Datatype::Vector { count, block, stride, element } => build(element, depth)?
            .repeat(*block, element.bounds()?.extent())?
            .repeat(*count, *stride),
        Datatype::Indexed { blocks, element } => {
            let extent = element.bounds()?.extent();
            let map = build(element, depth)?;
            let part =
                |block: &Block| map.clone().repeat(block.length, extent)?.moved(block.displacement);
            TypeMap::list(blocks.iter().map(part).collect::<Result<_, _>>()?)
        }
        Datatype::Struct { fields } => {
            let part = |field: &Field| {
                let extent = field.datatype.bounds()?.extent();
                build(&field.datatype, depth)?
                    .repeat(field.count, extent)?
                    .moved(field.displacement)
            };
            TypeMap::list(fields.iter().map(part).collect::<Result<_, _>>()?)
        }
        Datatype::Resized { element, .. } => build(element, depth),
    }
}
