//! Rates of a directory: some threads write a file each, sync it, and read it.
//!
//! Each rate is that of the bytes by which one of two measurements is larger than the other, so that times
//! that do not depend on the amount of data, such as those of opens, have no effect. It is the median of
//! several such pairs.

use super::repeated::{REPETITIONS, Repeated};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Threads, each with a file of its own.
const THREADS: u64 = 4;
/// Bytes of a call.
const CALL: usize = 1 << 20;

/// Rates of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeRates {
    /// Until all writes have returned.
    pub send: Repeated,
    /// Until all data are synced.
    pub write: Repeated,
    /// Reading the data back.
    pub read: Repeated,
}

/// Measures a directory with `bytes` in total, in files that are removed afterwards.
///
/// # Errors
/// A file cannot be created, written, synced or read.
pub fn probe(directory: &Path, bytes: u64) -> io::Result<ProbeRates> {
    let name = |nth: u64| format!(".forebay-measure-{}-{nth}", std::process::id());
    let files: Vec<PathBuf> = (0..THREADS).map(|nth| directory.join(name(nth))).collect();
    let timed = |bytes: u64| {
        let measured = measure(&files, bytes.div_ceil(THREADS));
        for file in &files {
            let _ = remove_file(file);
        }
        measured
    };
    // Connections are made and their windows grow before the measurements.
    timed(THREADS * CALL as u64)?;
    let mut found: [Vec<(u64, f64)>; 3] = Default::default();
    // Smaller and larger amounts by turns, so that a load that comes or goes affects both.
    for _ in 0..REPETITIONS {
        let (less, all) = (timed(lesser(bytes))?, timed(bytes)?);
        let pairs = [(less.send, all.send), (less.write, all.write), (less.read, all.read)];
        for (of_rate, (less, all)) in found.iter_mut().zip(pairs) {
            of_rate.push(rate_between(bytes, less, all));
        }
    }
    let [send, write, read] = found
        .map(|all| Repeated::of(&all).unwrap_or_else(|| unreachable!("at least one repetition")));
    Ok(ProbeRates { send, write, read })
}

/// Bytes of the smaller measurement that goes with one of `bytes`.
pub(super) fn lesser(bytes: u64) -> u64 {
    bytes / 4
}

/// Rate, bytes per second, and time that does not depend on the amount of data, seconds, if `bytes` take
/// `all` seconds and [`lesser`] take `less`. Where the difference is within the variation of measurements,
/// the rate of all bytes, and no time.
pub(super) fn rate_between(bytes: u64, less: f64, all: f64) -> (u64, f64) {
    let (more, longer) = ((bytes - lesser(bytes)) as f64, all - less);
    let rate = if longer > all / 4.0 { more / longer } else { bytes as f64 / all.max(1e-9) };
    ((rate as u64).max(1), (all - bytes as f64 / rate).max(0.0))
}

/// Times of a measurement.
struct Seconds {
    send: f64,
    write: f64,
    read: f64,
}

fn measure(paths: &[PathBuf], each: u64) -> io::Result<Seconds> {
    let began = Instant::now();
    let files = on_all(paths, |path| write(path, each))?;
    let send = began.elapsed().as_secs_f64();
    on_all(&files, |file| file.sync_all())?;
    let write = began.elapsed().as_secs_f64();
    drop(files);
    let began = Instant::now();
    on_all(paths, |path| read(path, each))?;
    Ok(Seconds { send, write, read: began.elapsed().as_secs_f64() })
}

/// Applies a function to all items at the same time.
fn on_all<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}

/// Writes a file of `bytes`.
pub(super) fn write(path: &Path, bytes: u64) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    // Not zeros, which a file system might store as holes.
    let buffer: Vec<u8> = (0..CALL).map(|at| (at % 251) as u8).collect();
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CALL as u64) as usize;
        file.write_all(&buffer[..now])?;
        left -= now as u64;
    }
    Ok(file)
}

fn read(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::open(path)?;
    // What this host has in its page cache says nothing about the storage.
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut buffer = vec![0; CALL];
    let mut found = 0;
    loop {
        match file.read(&mut buffer)? {
            0 if found == bytes => return Ok(()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => found += count as u64,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    /// 6 MB more take 3 s more, whatever both take besides.
    #[test]
    fn rate_is_that_of_the_difference_between_two_measurements() {
        assert_eq!(rate_between(8_000_000, 2.0, 5.0), (2_000_000, 1.0));
        assert_eq!(rate_between(8_000_000, 1.0, 4.0), (2_000_000, 0.0));
        assert_eq!(
            rate_between(8_000_000, 4.0, 4.0),
            (2_000_000, 0.0),
            "no longer: all bytes count"
        );
    }

    #[test]
    fn probe_measures_a_directory_and_leaves_nothing_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let rates = probe(directory.path(), 8 << 20).unwrap();
        let all = [rates.send, rates.write, rates.read];
        assert!(all.iter().all(|one| one.rate > 0 && one.spread >= 0.0), "{rates:?}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(probe(&directory.path().join("absent"), 1).is_err());
    }
}
