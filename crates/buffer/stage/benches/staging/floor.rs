//! What the parallel file system's side does alone: directories of the disk.

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

/// Waits until what others wrote is out of the way, and forgets what is cached.
pub fn settle() {
    rustix::fs::sync();
    // Only root may; without it reads come from memory for all contestants alike.
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

/// The seconds that something takes when nothing is cached.
pub fn timed<T>(what: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    settle();
    let begun = Instant::now();
    let value = what()?;
    Ok((begun.elapsed().as_secs_f64(), value))
}

/// Has threads do something with every part.
pub fn all(
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

/// Pieces of a part of at most a block.
pub fn blocks(part: &Part) -> impl Iterator<Item = (u64, usize)> {
    let (from, to) = (part.from, part.to);
    let starts = (from..to).step_by(BLOCK);
    starts.map(move |at| (at, usize::try_from(to - at).unwrap_or(BLOCK).min(BLOCK)))
}

/// Read all that is in the files of a tree.
pub fn read(root: &Path, shape: &Shape, threads: usize) -> io::Result<()> {
    all(&shape.parts, threads, |part, block| {
        let file = File::open(root.join(&part.path))?;
        for (at, length) in blocks(part) {
            file.read_exact_at(&mut block[..length], at)?;
        }
        Ok(())
    })
}

/// Write a tree of this shape, with owners, permissions and times, and put it on stable storage.
pub fn write(root: &Path, shape: &Shape, threads: usize) -> io::Result<()> {
    for directory in &shape.directories {
        fs::create_dir_all(root.join(directory))?;
    }
    all(&shape.parts, threads, |part, block| {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false);
        let file = file.open(root.join(&part.path))?;
        for (at, length) in blocks(part) {
            file.write_all_at(&block[..length], at)?;
        }
        set_attributes(&file)
    })?;
    for (path, goal) in &shape.links {
        symlink(goal, root.join(path))?;
    }
    for (path, first) in &shape.names {
        fs::hard_link(root.join(first), root.join(path))?;
    }
    Ok(rustix::fs::syncfs(File::open(root)?)?)
}

/// What every mover has to set.
fn set_attributes(file: &File) -> io::Result<()> {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 1 };
    let times = Timestamps { last_access: time, last_modification: time };
    fchown(file, Some(geteuid()), Some(getegid()))?;
    fchmod(file, Mode::from_raw_mode(0o644))?;
    Ok(futimens(file, &times)?)
}

/// Do two things at the same time.
pub fn together<A>(
    one: impl FnOnce() -> io::Result<()> + Send,
    other: impl FnOnce() -> io::Result<A>,
) -> io::Result<A> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        let one = one.join();
        one.unwrap_or_else(|_| Err(io::Error::other("a thread has ended")))?;
        other
    })
}

/// `cp -a`, and all of it on stable storage.
pub fn copy(from: &Path, to: &Path) -> Outcome<()> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    if !copied.success() {
        return Err("cp has failed".into());
    }
    Ok(rustix::fs::syncfs(File::open(to)?)?)
}
