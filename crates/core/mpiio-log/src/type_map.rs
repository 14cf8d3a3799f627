//! The bytes of a datatype as loops over runs: sizes are known in advance and adjacent runs are one,
//! so that any byte is found in a number of steps that depends on the depth only.

use crate::datatype::{Datatype, InvalidDatatype, MAX_DEPTH, checked};
use std::sync::Arc;

/// A run of consecutive bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Displacement of its first byte.
    pub at: i64,
    /// Bytes.
    pub length: u64,
}

impl Run {
    /// Displacement behind it.
    fn end(&self) -> Result<i64, InvalidDatatype> {
        checked(i128::from(self.at) + i128::from(self.length))
    }
}

/// Bytes of a datatype, relative to its origin. Copies share memory, so that that of a datatype does
/// not exceed a multiple of its own, however often its parts are repeated.
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
    Runs { displacements: Arc<[i64]>, ends: Arc<[u64]> },
    /// Parts; `ends[i]` is the number of data bytes up to the end of part i.
    Parts { parts: Arc<[TypeMap]>, ends: Arc<[u64]> },
}

/// Most comparisons of parts of a datatype, which find those that are equal: nested lists have more
/// pairs of parts than memory has bytes.
const MAX_COMPARISONS: usize = 1 << 22;
/// Bytes of memory for a node of a datatype, its loops included.
pub(crate) const NODE_BYTES: u64 = 128;
/// Bytes of memory for a run in a list, while that is built.
const RUN_BYTES: u64 = 64;
/// As [`RUN_BYTES`], for a part that is no run.
const PART_BYTES: u64 = 320;

/// Costs of a datatype.
#[derive(Debug)]
struct Costs {
    /// Comparisons that are left.
    comparisons: usize,
    /// Bytes of memory so far, roughly.
    memory: u64,
    /// Most bytes of memory.
    limit: u64,
}

impl Costs {
    fn take(&mut self, bytes: u64) -> Result<(), InvalidDatatype> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > self.limit { Err(InvalidDatatype::TooManyParts) } else { Ok(()) }
    }

    /// Whether so many comparisons are left; then they are taken.
    fn compare(&mut self, count: usize) -> bool {
        let rest = self.comparisons.checked_sub(count);
        self.comparisons = rest.unwrap_or(0);
        rest.is_some()
    }
}

impl TypeMap {
    /// The bytes of a datatype, and roughly the bytes of memory that both need: at most `limit`.
    pub fn new(datatype: &Datatype, limit: u64) -> Result<(TypeMap, u64), InvalidDatatype> {
        datatype.size()?;
        datatype.bounds()?;
        let mut costs = Costs { comparisons: MAX_COMPARISONS, memory: 0, limit };
        let map = build(datatype, MAX_DEPTH, &mut costs)?;
        Ok((map, costs.memory))
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

    fn is_run(&self) -> bool {
        matches!(self.loops, Loops::Run)
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

/// Parts one after another in the order of the data; adjacent runs are joined.
#[derive(Debug, Default)]
struct List {
    /// The parts, while all of them are runs.
    runs: Vec<Run>,
    /// The parts, if there are others.
    parts: Vec<TypeMap>,
}

impl List {
    fn add(&mut self, part: TypeMap, costs: &mut Costs) -> Result<(), InvalidDatatype> {
        costs.take(if part.is_run() { RUN_BYTES } else { PART_BYTES })?;
        if part.size == 0 {
            return Ok(());
        }
        if part.is_run() && self.parts.is_empty() {
            match self.runs.last_mut() {
                Some(last) if last.end()? == part.low => last.length += part.size,
                Some(_) | None => self.runs.push(Run { at: part.low, length: part.size }),
            }
            return Ok(());
        }
        for run in std::mem::take(&mut self.runs) {
            self.parts.push(TypeMap::run(run.at, run.length)?);
        }
        match self.parts.last_mut() {
            Some(last) if last.is_run() && part.is_run() && last.high == part.low => {
                *last = TypeMap::run(last.at, last.size + part.size)?;
            }
            Some(_) | None => self.parts.push(part),
        }
        Ok(())
    }

    /// All parts as one.
    fn finish(mut self, costs: &mut Costs) -> Result<TypeMap, InvalidDatatype> {
        if self.parts.is_empty() {
            return List::join_runs(&self.runs);
        }
        if self.parts.len() == 1 {
            return Ok(self.parts.remove(0));
        }
        let parts = self.parts;
        if let Some(stride) = equal_distance(&parts, costs) {
            return parts[0].clone().repeat(parts.len() as u64, stride);
        }
        let low = parts.iter().map(|part| part.low).min().unwrap_or(0);
        let high = parts.iter().map(|part| part.high).max().unwrap_or(0);
        let ordered = parts.iter().all(|part| part.ordered)
            && parts.windows(2).all(|pair| pair[0].high <= pair[1].low);
        let (size, ends) = ends(parts.iter().map(|part| part.size))?;
        let loops = Loops::Parts { parts: parts.into(), ends };
        Ok(TypeMap { loops, at: 0, size, low, high, ordered })
    }

    fn join_runs(runs: &[Run]) -> Result<TypeMap, InvalidDatatype> {
        let Some(first) = runs.first() else { return TypeMap::run(0, 0) };
        let stride = runs.get(1).map_or(0, |second| second.at - first.at);
        let is_regular = runs
            .windows(2)
            .all(|pair| pair[1].at - pair[0].at == stride && pair[1].length == pair[0].length);
        if is_regular {
            return TypeMap::run(first.at, first.length)?.repeat(runs.len() as u64, stride);
        }
        let (mut low, mut high, mut ordered) = (first.at, first.at, true);
        let mut before = first.at;
        for run in runs {
            let end = run.end()?;
            ordered &= before <= run.at;
            (low, high, before) = (low.min(run.at), high.max(end), end);
        }
        let (size, ends) = ends(runs.iter().map(|run| run.length))?;
        let loops = Loops::Runs { displacements: runs.iter().map(|run| run.at).collect(), ends };
        Ok(TypeMap { loops, at: 0, size, low, high, ordered })
    }
}

/// The sum of sizes, and the sums up to each of them.
fn ends(sizes: impl Iterator<Item = u64>) -> Result<(u64, Arc<[u64]>), InvalidDatatype> {
    let mut sum = 0;
    let mut ends = Vec::with_capacity(sizes.size_hint().0);
    for size in sizes {
        sum = checked(i128::from(sum) + i128::from(size))?.unsigned_abs();
        ends.push(sum);
    }
    Ok((sum, ends.into()))
}

/// The distance of parts that are equal and at equal distances; none if that takes too many
/// comparisons.
fn equal_distance(parts: &[TypeMap], costs: &mut Costs) -> Option<i64> {
    let (first, second) = (parts.first()?, parts.get(1)?);
    let stride = second.at - first.at;
    let mut pairs = parts.windows(2);
    let regular = pairs.all(|pair| {
        pair[1].at - pair[0].at == stride
            && pair[1].size == pair[0].size
            && are_equal(&pair[1].loops, &pair[0].loops, costs)
    });
    regular.then_some(stride)
}

/// Whether loops are equal, as far as this many comparisons show it.
fn are_equal(one: &Loops, other: &Loops, costs: &mut Costs) -> bool {
    match (one, other) {
        (Loops::Run, Loops::Run) => true,
        (Loops::Repeat { stride: by, element: of }, Loops::Repeat { stride, element }) => {
            by == stride && (Arc::ptr_eq(of, element) || are_equal_maps(of, element, costs))
        }
        (Loops::Runs { displacements: at, ends: lengths }, Loops::Runs { displacements, ends }) => {
            Arc::ptr_eq(at, displacements) && Arc::ptr_eq(lengths, ends)
                || costs.compare(at.len()) && at == displacements && lengths == ends
        }
        (Loops::Parts { parts: of, .. }, Loops::Parts { parts, .. }) => {
            let mut pairs = of.iter().zip(&**parts);
            Arc::ptr_eq(of, parts)
                || of.len() == parts.len()
                    && pairs.all(|(one, other)| are_equal_maps(one, other, costs))
        }
        (Loops::Run | Loops::Repeat { .. } | Loops::Runs { .. } | Loops::Parts { .. }, _) => false,
    }
}

fn are_equal_maps(one: &TypeMap, other: &TypeMap, costs: &mut Costs) -> bool {
    costs.compare(1)
        && one.at == other.at
        && one.size == other.size
        && are_equal(&one.loops, &other.loops, costs)
}

fn build(datatype: &Datatype, depth: usize, costs: &mut Costs) -> Result<TypeMap, InvalidDatatype> {
    let depth = depth.checked_sub(1).ok_or(InvalidDatatype::TooDeep)?;
    costs.take(NODE_BYTES)?;
    match datatype {
        Datatype::Bytes(length) => TypeMap::run(0, *length),
        Datatype::Contiguous { count, element } => {
            build(element, depth, costs)?.repeat(*count, element.bounds()?.extent())
        }
        Datatype::Vector { count, block, stride, element } => build(element, depth, costs)?
            .repeat(*block, element.bounds()?.extent())?
            .repeat(*count, *stride),
        Datatype::Indexed { blocks, element } => {
            let extent = element.bounds()?.extent();
            let map = build(element, depth, costs)?;
            let mut list = List::default();
            for block in blocks {
                let part = map.clone().repeat(block.length, extent)?;
                list.add(part.moved(block.displacement)?, costs)?;
            }
            list.finish(costs)
        }
        Datatype::Struct { fields } => {
            let mut list = List::default();
            for field in fields {
                let extent = field.datatype.bounds()?.extent();
                let map = build(&field.datatype, depth, costs)?;
                let part = map.repeat(field.count, extent)?;
                list.add(part.moved(field.displacement)?, costs)?;
            }
            list.finish(costs)
        }
        Datatype::Resized { element, .. } => build(element, depth, costs),
    }
}
