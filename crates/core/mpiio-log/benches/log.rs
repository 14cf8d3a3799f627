//! The speed of logging, compared with large writes of the same bytes to the same directory, and of
//! merging and applying a log.
//!
//! `cargo bench --package forebay-mpiio-log --bench log [-- DIRECTORY [SIZE…]]`, sizes in bytes
//!
//! Each comparison is made twice: with one block of memory that is written again and again, which
//! stays in the processor's cache, and with the bytes of an array that does not fit into it, as
//! programs have them. There both ways read the memory once.
#![allow(clippy::unwrap_used, reason = "a failed step ends the benchmark")]

use forebay_mpiio_log::{
    Alignment, Datatype, Identity, Limits, LogWriter, View, apply, plan, scan,
};
use forebay_random::hash_number;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a run.
const TOTAL: u64 = 512 << 20;
/// Paired runs of a case.
const PAIRS: usize = 7;

/// GB/s of an action on `TOTAL` bytes.
fn rate(action: impl FnOnce()) -> f64 {
    let start = Instant::now();
    action();
    TOTAL as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The memory that is written.
#[derive(Clone, Copy)]
struct Source<'a> {
    bytes: &'a [u8],
    /// Every write has the first bytes, which stay in the processor's cache.
    cached: bool,
}

impl<'a> Source<'a> {
    /// The bytes of a write.
    fn block(self, position: u64, size: u64) -> &'a [u8] {
        let start = if self.cached { 0 } else { position as usize };
        &self.bytes[start..start + size as usize]
    }
}

/// Writes blocks of 1 MiB to a new file, which is preallocated like a log, and syncs it.
fn large_writes(directory: &Path, source: Source<'_>, sync: bool) -> f64 {
    let path = directory.join("large");
    let file = File::create_new(&path).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, TOTAL).unwrap();
    let rate = rate(|| {
        for offset in (0..TOTAL).step_by(1 << 20) {
            file.write_all_at(source.block(offset, 1 << 20), offset).unwrap();
        }
        if sync {
            file.sync_data().unwrap();
        }
    });
    std::fs::remove_file(path).unwrap();
    rate
}

fn writer(directory: &Path) -> LogWriter {
    let target = PathBuf::from("/target");
    let identity = Identity { target, run: "benchmark".to_owned(), rank: 0, ranks: 1 };
    let limits = Limits { bytes: 2 * TOTAL, entries: 1 << 24, ..Limits::default() };
    LogWriter::create(directory, &identity, limits).unwrap()
}

/// Logs writes of `size` bytes through a strided view.
fn log(directory: &Path, size: u64, source: Source<'_>, sync: bool) -> (f64, LogWriter) {
    let mut writer = writer(directory);
    let element = Arc::new(Datatype::Bytes(size.min(4096)));
    let extent = 4 * size.min(4096) as i64;
    let filetype = Datatype::Resized { lower_bound: 0, extent, element };
    let view = Arc::new(View::new(0, filetype).unwrap());
    let rate = rate(|| {
        for position in (0..TOTAL).step_by(size as usize) {
            writer.append(&view, position, source.block(position, size)).unwrap();
        }
        if sync {
            writer.sync().unwrap();
        }
    });
    (rate, writer)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let base = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let sizes: Vec<u64> = arguments.map(|size| size.parse().unwrap()).collect();
    let all = vec![512, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
    let sizes = if sizes.is_empty() { all } else { sizes };
    let directory = tempfile::tempdir_in(base).unwrap();
    let bytes: Vec<u8> = (0..TOTAL / 8).flat_map(|at| hash_number(at).to_le_bytes()).collect();
    println!("medians of {PAIRS} paired runs of {} MiB in {:?}", TOTAL >> 20, directory.path());
    println!(
        "{:>12} {:>6} {:>6} {:>10} {:>12} {:>6}",
        "write", "data", "sync", "log GB/s", "large GB/s", "ratio"
    );
    for size in sizes {
        for (cached, sync) in [(true, false), (false, false), (true, true), (false, true)] {
            let source = Source { bytes: &bytes, cached };
            let mut pairs = Vec::new();
            for pair in 0..=PAIRS {
                let large = large_writes(directory.path(), source, sync);
                let (logged, writer) = log(directory.path(), size, source, sync);
                writer.discard().unwrap();
                // The first pair warms up.
                if pair > 0 {
                    pairs.push((logged, large));
                }
            }
            let logged = median(pairs.iter().map(|(logged, _)| *logged).collect());
            let large = median(pairs.iter().map(|(_, large)| *large).collect());
            let ratio = median(pairs.iter().map(|(logged, large)| logged / large).collect());
            let data = if cached { "cache" } else { "memory" };
            println!("{size:>12} {data:>6} {sync:>6} {logged:>10.2} {large:>12.2} {ratio:>6.2}");
        }
    }
    let (_, mut writer) =
        log(directory.path(), 64 << 10, Source { bytes: &bytes, cached: false }, false);
    writer.flush().unwrap();
    let writes = plan(writer.entries(), 0..u64::MAX, Alignment::default());
    let start = Instant::now();
    let count = writes.count();
    println!("planning {} entries: {count} writes, {:?}", writer.entries().len(), start.elapsed());
    let start = Instant::now();
    scan(writer.path()).unwrap();
    println!("scanning with checksums: {:?}", start.elapsed());
    let target = File::create(directory.path().join("target")).unwrap();
    let applied = rate(|| {
        let plan = plan(writer.entries(), 0..u64::MAX, Alignment::default());
        apply(plan, &writer, &target).unwrap();
    });
    println!("applying: {applied:.2} GB/s");
}
