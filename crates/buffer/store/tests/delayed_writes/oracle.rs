//! The order of all changes of the file, and what reads may return.

/// Bytes that are written and compared as one.
pub const CELL_BYTES: u64 = 1024;
/// Cells of the file.
pub const CELLS: u64 = 24;

#[derive(Debug)]
enum Kind {
    Write(u64),
    /// All cells from this one on are removed.
    Truncate(u64),
}

/// A change. Times count the events of the history.
#[derive(Debug)]
struct Change {
    kind: Kind,
    begun: u64,
    /// When its program was told that it was carried out.
    acknowledged: Option<u64>,
    /// Its program was told later that it failed.
    has_failed: bool,
    writer: Option<usize>,
}

impl Change {
    fn concerns(&self, cell: u64) -> bool {
        match self.kind {
            Kind::Write(written) => written == cell,
            Kind::Truncate(first) => first <= cell,
        }
    }

    /// Whether it was over when the other began.
    fn precedes(&self, other: &Change) -> bool {
        self.acknowledged.is_some_and(|at| at < other.begun)
    }

    /// Whether it counts for whatever began then.
    fn is_certain_at(&self, time: u64) -> bool {
        !self.has_failed && self.acknowledged.is_some_and(|at| at < time)
    }
}

#[derive(Debug)]
struct Read {
    cell: u64,
    /// The number of the write whose data it returned; 0: none.
    found: u64,
    begun: u64,
}

/// An observation of the length of a data object.
#[derive(Debug)]
struct Stat {
    /// Cells on the node of the object that its length covers, and does not.
    covered: Vec<(u64, bool)>,
    begun: u64,
    /// Writers that were separated from the node meanwhile.
    silent: Vec<usize>,
}

/// All changes and observations.
#[derive(Debug, Default)]
pub struct Oracle {
    changes: Vec<Change>,
    reads: Vec<Read>,
    stats: Vec<Stat>,
    time: u64,
}

impl Oracle {
    /// The time of the next event.
    pub fn now(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    fn begin(&mut self, kind: Kind, writer: Option<usize>) -> u64 {
        let begun = self.now();
        self.changes.push(Change { kind, begun, acknowledged: None, has_failed: false, writer });
        self.changes.len() as u64
    }

    /// A write to a cell begins. Returns its number.
    pub fn begin_write(&mut self, cell: u64, writer: Option<usize>) -> u64 {
        self.begin(Kind::Write(cell), writer)
    }

    /// A truncation begins. Returns its number.
    pub fn begin_truncation(&mut self, cells: u64) -> u64 {
        self.begin(Kind::Truncate(cells), None)
    }

    /// A change is acknowledged.
    pub fn acknowledge(&mut self, number: u64) {
        let now = self.now();
        self.changes[number as usize - 1].acknowledged = Some(now);
    }

    /// An acknowledged write is reported as failed.
    pub fn fail(&mut self, number: u64) {
        self.changes[number as usize - 1].has_failed = true;
    }

    /// A cell was read now, with these data.
    pub fn read(&mut self, cell: u64, data: &[u8]) {
        let mut words = data.chunks(8).map(|word| {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            u64::from_le_bytes(bytes)
        });
        let found = words.next().unwrap_or(0);
        assert!(words.all(|word| word == found), "cell {cell} is torn");
        let begun = self.now();
        self.reads.push(Read { cell, found, begun });
    }

    /// The length of an object was observed that began at a time.
    pub fn stat(&mut self, covered: Vec<(u64, bool)>, begun: u64, silent: Vec<usize>) {
        self.stats.push(Stat { covered, begun, silent });
    }

    /// The data of a write.
    pub fn data(number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(CELL_BYTES as usize / 8)
    }

    /// Checks all observations. Returns how many writes failed.
    pub fn check(&self) -> u64 {
        self.reads.iter().for_each(|read| self.check_read(read));
        self.stats.iter().for_each(|stat| self.check_stat(stat));
        self.changes.iter().filter(|change| change.has_failed).count() as u64
    }

    fn check_read(&self, read: &Read) {
        let of_cell = || self.changes.iter().filter(|change| change.concerns(read.cell));
        let found: Vec<&Change> = match read.found {
            0 => of_cell().filter(|change| matches!(change.kind, Kind::Truncate(_))).collect(),
            number => vec![&self.changes[number as usize - 1]],
        };
        assert!(found.iter().all(|change| change.concerns(read.cell)), "{read:?}");
        assert!(found.iter().any(|change| change.begun < read.begun) || read.found == 0);
        let newer = |older: Option<&Change>| {
            of_cell().find(|change| {
                let is_later = older.is_none_or(|older| older.precedes(change));
                is_later && change.is_certain_at(read.begun)
            })
        };
        let begun = found.iter().filter(|change| change.begun < read.begun);
        let initial = (read.found == 0).then_some(None);
        let candidates: Vec<Option<&Change>> =
            begun.map(|change| Some(*change)).chain(initial).collect();
        let is_possible = candidates.iter().any(|older| newer(*older).is_none());
        assert!(is_possible, "{read:?} found {candidates:?}, and not {:?}", newer(candidates[0]));
    }

    fn check_stat(&self, stat: &Stat) {
        for (cell, is_covered) in &stat.covered {
            for write in &self.changes {
                let is_silent = write.writer.is_some_and(|writer| stat.silent.contains(&writer));
                if !matches!(write.kind, Kind::Write(written) if written == *cell)
                    || is_silent
                    || !write.is_certain_at(stat.begun)
                {
                    continue;
                }
                let may_remove = |change: &&Change| {
                    matches!(change.kind, Kind::Truncate(_))
                        && change.concerns(*cell)
                        && !change.precedes(write)
                };
                let is_removed = self.changes.iter().find(may_remove).is_some();
                assert!(*is_covered || is_removed, "{stat:?} does not show {write:?}");
            }
        }
    }
}
