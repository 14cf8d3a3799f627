//! Writes logs of all formats.

use bzip2::write::BzEncoder;
use flate2::write::ZlibEncoder;
use std::io::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Zlib,
    Bzip2,
    None,
}

/// A log to write: modules by the numbers that the format has for them.
#[derive(Clone, Debug)]
pub struct Writer {
    pub version: &'static str,
    pub order: Order,
    pub packing: Packing,
    pub partial: u64,
    /// Streams into which each region is divided, as if so many processes had written it.
    pub streams: usize,
    pub processes: i64,
    pub trailing: &'static str,
    pub names: Vec<(u64, String)>,
    /// Number, version of the records, records.
    pub modules: Vec<(usize, u32, Vec<u8>)>,
}

impl Default for Writer {
    fn default() -> Self {
        Writer {
            version: "3.41",
            order: Order::Little,
            packing: Packing::Zlib,
            partial: 0,
            streams: 3,
            processes: 8,
            trailing: "/home/ada/simulate --steps 10\nlustre\t/lus\next4\t/\nlustre\t/lus/fast",
            names: vec![(7, "/lus/fast/out.dat".into()), (8, "/lus/fastest".into())],
            modules: Vec::new(),
        }
    }
}

impl Writer {
    pub fn i64(&self, value: i64) -> [u8; 8] {
        match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    pub fn u32(&self, value: u32) -> [u8; 4] {
        match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    /// Integers one after another.
    pub fn integers(&self, values: impl IntoIterator<Item = i64>) -> Vec<u8> {
        values.into_iter().flat_map(|value| self.i64(value)).collect()
    }

    /// A record of counters and times.
    pub fn record(&self, id: i64, rank: i64, counters: &[i64], times: &[f64]) -> Vec<u8> {
        let times = times.iter().map(|time| time.to_bits().cast_signed());
        self.integers([id, rank].into_iter().chain(counters.iter().copied()).chain(times))
    }

    /// A segment of DXT, with a thread id or without.
    pub fn segment(
        &self,
        (offset, bytes): (i64, i64),
        (start, end): (f64, f64),
        thread: bool,
    ) -> Vec<u8> {
        let times = [start, end].map(|time| time.to_bits().cast_signed());
        self.integers([offset, bytes].into_iter().chain(times).chain(thread.then_some(99)))
    }

    /// The head of a trace.
    pub fn trace(&self, id: i64, rank: i64, host: &str, counts: (i64, i64)) -> Vec<u8> {
        let mut bytes = self.integers([id, rank, 0]);
        bytes.extend(host.bytes().chain(std::iter::repeat(0)).take(64));
        bytes.extend(self.integers([counts.0, counts.1]));
        bytes
    }

    fn pack(&self, data: &[u8]) -> Vec<u8> {
        if self.packing == Packing::None {
            return data.to_vec();
        }
        let part = data.len().div_ceil(self.streams.max(1)).max(1);
        let mut packed = Vec::new();
        for part in data.chunks(part) {
            match self.packing {
                Packing::Zlib => {
                    let mut encoder = ZlibEncoder::new(&mut packed, flate2::Compression::default());
                    encoder.write_all(part).unwrap();
                    encoder.finish().unwrap();
                }
                Packing::Bzip2 => {
                    let mut encoder = BzEncoder::new(&mut packed, bzip2::Compression::fast());
                    encoder.write_all(part).unwrap();
                    encoder.finish().unwrap();
                }
                Packing::None => {}
            }
        }
        packed
    }

    fn job(&self, is_new: bool) -> Vec<u8> {
        let mut job = match is_new {
            true => self.integers([1000, 100, 250_000_000, 160, 750_000_000, self.processes, 4711]),
            false => self.integers([1000, 100, 160, self.processes, 4711]),
        };
        let metadata = b"lib_ver=3.4.4\nh=romio_no_indep_rw=true\n";
        job.extend(metadata.iter().copied().chain(std::iter::repeat(0)).take(1024));
        job.extend(self.trailing.bytes());
        job.push(0);
        job
    }

    fn packed_names(&self) -> Vec<u8> {
        let mut names = Vec::new();
        for (id, name) in &self.names {
            names.extend(self.i64(id.cast_signed()));
            if self.version == "3.00" {
                names.extend(self.u32(name.len() as u32));
            }
            names.extend(name.bytes());
            if self.version != "3.00" {
                names.push(0);
            }
        }
        self.pack(&names)
    }

    /// The log.
    pub fn log(&self) -> Vec<u8> {
        let is_new = self.version == "3.41";
        let (header_bytes, slots) = if is_new { (1328, 64) } else { (360, 16) };
        let mut body = self.pack(&self.job(is_new));
        let names = self.packed_names();
        let names_at = if self.names.is_empty() { 0 } else { header_bytes + body.len() };
        body.extend(&names);
        let mut maps = vec![(0, 0); slots];
        let mut versions = vec![0; slots];
        for (number, version, records) in &self.modules {
            let packed = self.pack(records);
            maps[*number] = (header_bytes + body.len(), packed.len());
            versions[*number] = *version;
            body.extend(packed);
        }
        let mut log = self.version.as_bytes().to_vec();
        log.resize(8, 0);
        log.extend(self.i64(6_567_223));
        log.push(match self.packing {
            Packing::Zlib => 0,
            Packing::Bzip2 => 1,
            Packing::None => 2,
        });
        match is_new {
            true => {
                log.resize(24, 0);
                log.extend(self.i64(self.partial.cast_signed()));
            }
            false => {
                log.resize(20, 0);
                log.extend(self.u32(self.partial as u32));
            }
        }
        for (offset, bytes) in std::iter::once((names_at, names.len())).chain(maps) {
            log.extend(self.i64(offset as i64));
            log.extend(self.i64(bytes as i64));
        }
        for version in versions {
            log.extend(self.u32(version));
        }
        assert_eq!(log.len(), header_bytes);
        log.extend(body);
        log
    }
}
