//! The side of the parallel file system alone: directories on the disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::fs::{Mode, Timespec, Timestamps, fchmod, fchown, futimens};
use rustix::process::{getegid, geteuid};

use crate::Outcome;
use crate::trees::{Noise, Part, Shape};

const BLOCK: usize = 1 << 20;

/// Syncs earlier writes and empties the page cache.
pub fn settle() {
    rustix::fs::sync();
    // Needs root. Otherwise all contestants read from memory.
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

/// The seconds that `act` takes with an empty page cache.
pub fn timed<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    settle();
    let started = Instant::now();
    let value = act()?;
    Ok((started.elapsed().as_secs_f64(), value))
}

/// Runs `each` for every part, on several threads.
pub fn for_each_part(
    parts: &[Part],
    threads: usize,
    each: impl Fn(&Part, &mut [u8]) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (next, failed, each) = (&next, &failed, &each);
            scope.spawn(move || {
                let mut block = vec![0; BLOCK];
                Noise::new(thread as u64).fill(&mut block);
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = each(part, &mut block) {
                        let error = io::Error::new(
                            error.kind(),
                            format!("{}: {error}", part.path.display()),
                        );
                        if let Ok(mut failed) = failed.lock() {
                            *failed = Some(error);
                        }
                        return;
                    }
                }
            });
        }
    });
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}

/// The blocks of a part: offset and length.
pub fn blocks(part: &Part) -> impl Iterator<Item = (u64, usize)> {
    let (from, to) = (part.from, part.to);
    let starts = (from..to).step_by(BLOCK);
    starts.map(move |at| (at, usize::try_from(to - at).unwrap_or(BLOCK).min(BLOCK)))
}

/// Reads all files of a tree.
pub fn read(root: &Path, shape: &Shape, threads: usize) -> io::Result<()> {
    for_each_part(&shape.parts, threads, |part, block| {
        let file = File::open(root.join(&part.path))?;
        for (at, length) in blocks(part) {
            file.read_exact_at(&mut block[..length], at)?;
        }
        Ok(())
    })
}

/// Writes a tree of this shape with owners, permissions and times, and syncs it.
pub fn write(root: &Path, shape: &Shape, threads: usize) -> io::Result<()> {
    for directory in &shape.directories {
        fs::create_dir_all(root.join(directory))?;
    }
    for_each_part(&shape.parts, threads, |part, block| {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false);
        let file = file.open(root.join(&part.path))?;
        for (at, length) in blocks(part) {
            file.write_all_at(&block[..length], at)?;
        }
        set_attributes(&file)
    })?;
    for (path, link_target) in &shape.links {
        symlink(link_target, root.join(path))?;
    }
    for (path, first) in &shape.hard_links {
        fs::hard_link(root.join(first), root.join(path))?;
    }
    Ok(rustix::fs::syncfs(File::open(root)?)?)
}

/// Sets the attributes that a mover sets.
fn set_attributes(file: &File) -> io::Result<()> {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 1 };
    let times = Timestamps { last_access: time, last_modification: time };
    fchown(file, Some(geteuid()), Some(getegid()))?;
    fchmod(file, Mode::from_raw_mode(0o644))?;
    Ok(futimens(file, &times)?)
}

/// Runs two functions at the same time.
pub fn run_both<A>(
    one: impl FnOnce() -> io::Result<()> + Send,
    other: impl FnOnce() -> io::Result<A>,
) -> io::Result<A> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        let one = one.join();
        one.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        other
    })
}

/// `cp -a`, and `syncfs`.
pub fn copy(from: &Path, to: &Path) -> Outcome<()> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    if !copied.success() {
        return Err("cp failed".into());
    }
    Ok(rustix::fs::syncfs(File::open(to)?)?)
}
