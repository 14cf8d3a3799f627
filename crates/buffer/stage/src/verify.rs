//! Reading the copies back from stable storage, and comparing them with the digests of what was read
//! at the source.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

use crate::context::{ReadBackItem, StageContext};
use crate::copy_range::{CHUNK_BYTES, Pieces, digest_of_copy};
use crate::end::{DirHandle, FileHandle, MAX_SMALL_FILE};
use crate::error::{Failure, Problem};
use crate::location::open_dir_below;
use crate::tree::{CopyLocation, DirTree, damaged_name};

/// Maximum number of threads.
const MAX_THREADS: usize = 256;
/// Maximum number of copies that a thread has the kernel prefetch at a time: read one by one, each
/// small copy would be waited for.
const MAX_BATCH_COPIES: usize = 32;
/// Maximum bytes of such a batch, unless it is a single copy.
const MAX_BATCH_BYTES: u64 = 1 << 20;

/// Verifies all copies, with twice as many threads as copied them: while some threads hash, enough
/// others wait for data to keep the storage busy. A damaged copy is reported and renamed, so that
/// the next run copies the file again.
pub(crate) fn verify_copies(ctx: &StageContext<'_>) {
    let items = std::mem::take(&mut *ctx.read_back.lock());
    let next = Mutex::new(0);
    if ctx.options.workers == 0 {
        return verify_batches(ctx, &items, &next);
    }
    std::thread::scope(|scope| {
        for _ in 0..ctx.options.workers.saturating_mul(2).min(MAX_THREADS) {
            scope.spawn(|| verify_batches(ctx, &items, &next));
        }
    });
    assert!(ctx.is_stopped() || *next.lock() == items.len());
}

/// Claims the next batch; empty if everything is claimed.
fn claim_batch<'i>(items: &'i [ReadBackItem], next: &Mutex<usize>) -> &'i [ReadBackItem] {
    let mut next = next.lock();
    let rest = items.get(*next..).unwrap_or_default();
    let mut bytes = 0u64;
    let fits = |item: &&ReadBackItem| {
        bytes = bytes.saturating_add(item.pieces.length());
        bytes <= MAX_BATCH_BYTES
    };
    let count = rest.iter().take(MAX_BATCH_COPIES).take_while(fits).count();
    let batch = rest.get(..count.max(1)).unwrap_or_default();
    assert!(batch.len() <= MAX_BATCH_COPIES);
    *next += batch.len();
    batch
}

fn verify_batches(ctx: &StageContext<'_>, items: &[ReadBackItem], next: &Mutex<usize>) {
    let mut buffer = vec![0u8; CHUNK_BYTES];
    let mut last_dir = None;
    loop {
        let batch = claim_batch(items, next);
        if batch.is_empty() {
            return;
        }
        let mut open = Vec::with_capacity(batch.len());
        for item in batch {
            if ctx.is_stopped() {
                return;
            }
            if item.state.damaged.load(Ordering::Relaxed) {
                continue;
            }
            match open_copy(item, &mut last_dir) {
                Ok(Some(file)) => {
                    drop_cached_pages(&*file, &item.pieces);
                    prefetch(&*file, &item.pieces);
                    open.push((item, file));
                }
                Ok(None) => {}
                Err(failure) => ctx.record_outcome(&item.location.display(), Err(failure)),
            }
        }
        for (item, file) in open {
            if ctx.is_stopped() {
                return;
            }
            let outcome = verify_item(ctx, item, file, &mut last_dir, &mut buffer);
            ctx.record_outcome(&item.location.display(), outcome);
        }
    }
}

/// The target directory that a thread used last.
type LastDir = Option<(usize, Arc<Path>, Box<dyn DirHandle>)>;

fn open_target_dir<'n>(
    last: &'n mut LastDir,
    tree: &DirTree,
    directory: &Arc<Path>,
) -> Result<&'n dyn DirHandle, Failure> {
    let same = |(index, path, _): &(usize, Arc<Path>, _)| *index == tree.index && path == directory;
    if !last.as_ref().is_some_and(same) {
        let opened = open_dir_below(&*tree.target, directory)
            .map_err(|e| Failure::target("opening its directory to read it back", e))?;
        *last = Some((tree.index, directory.clone(), opened));
    }
    match last {
        Some((_, _, dir)) => Ok(&**dir),
        None => Err(Failure::target("opening its directory", Errno::IO)),
    }
}

fn reading_back(problem: Problem) -> Failure {
    let errno = Errno::from_raw_os_error(problem.code);
    Failure::File(format!("reading it back: {}", problem.reason), errno)
}

/// Opens a copy; `None` if it was found to be damaged meanwhile.
fn open_copy(
    item: &ReadBackItem,
    last_dir: &mut LastDir,
) -> Result<Option<Box<dyn FileHandle>>, Failure> {
    let opened = match &item.location {
        CopyLocation::Tree { tree, directory, name } => open_target_dir(last_dir, tree, directory)?
            .open(name, None)
            .map_err(|e| Failure::target("reading it back", e)),
        CopyLocation::Single(path) => path.open_file().map_err(reading_back),
    };
    match opened {
        // Another thread found another part damaged and renamed the copy.
        Err(_) if item.state.damaged.load(Ordering::Acquire) => Ok(None),
        opened => opened.map(Some),
    }
}

fn verify_item(
    ctx: &StageContext<'_>,
    item: &ReadBackItem,
    file: Box<dyn FileHandle>,
    last_dir: &mut LastDir,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    match digest_of_copy(&*file, &item.pieces, ctx.progress, buffer) {
        Ok(digest) if digest == item.digest => {
            let unverified = item.state.unverified.fetch_sub(1, Ordering::AcqRel);
            assert!(unverified > 0, "each part is verified once");
            if unverified == 1 {
                ctx.progress.read_back.add_file();
            }
            return Ok(());
        }
        Err(Failure::Cancelled) => return Err(Failure::Cancelled),
        // It differs, is shorter, or cannot be read.
        Ok(_) | Err(Failure::File(..) | Failure::Fatal(..)) => {}
    }
    drop(file);
    if item.state.damaged.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let damaged = "checksum mismatch: what was read back is not what was copied. The storage there is \
                   faulty, or another program writes to the copy";
    if item.location.is_hidden() {
        // Other movers write to it, too. It is removed when all have ended.
        return Err(Failure::File(damaged.to_owned(), Errno::IO));
    }
    let new_name = match &item.location {
        CopyLocation::Tree { tree, directory, name } => {
            rename_damaged(open_target_dir(last_dir, tree, directory)?, name)
        }
        CopyLocation::Single(path) => {
            let (parent, name) = path.open_parent().map_err(reading_back)?;
            rename_damaged(&*parent, &name)
        }
    };
    let new_name = new_name.map_err(|e| Failure::target("renaming the damaged copy", e))?;
    let reason = format!("{damaged}, which is renamed to {}", new_name.to_string_lossy());
    Err(Failure::File(reason, Errno::IO))
}

/// Renames a damaged copy. It is not removed, because another program may have replaced it.
fn rename_damaged(dir: &dyn DirHandle, name: &OsStr) -> Result<OsString, Errno> {
    let new_name = damaged_name(name);
    dir.rename(name, &new_name)?;
    Ok(new_name)
}

/// Drops these pieces from the page cache, so that they are read from storage and not from the
/// memory they were just written to. Other threads may be prefetching other parts of the file.
fn drop_cached_pages(file: &dyn FileHandle, pieces: &Pieces) {
    /// The kernel keeps pages that are covered in part only.
    const ALIGNMENT: u64 = 64 << 10;
    let Some(descriptor) = file.descriptor() else {
        return;
    };
    let (from, to) = pieces.bounds();
    let from = from / ALIGNMENT * ALIGNMENT;
    let length = to.saturating_sub(from).next_multiple_of(ALIGNMENT);
    if let Some(length) = NonZeroU64::new(length) {
        let _ = fadvise(descriptor, from, Some(length), Advice::DontNeed);
    }
}

/// Has the kernel start to read a small file.
fn prefetch(file: &dyn FileHandle, pieces: &Pieces) {
    let Pieces::All(0, to @ ..=MAX_SMALL_FILE) = pieces else {
        return;
    };
    if let (Some(descriptor), Some(length)) = (file.descriptor(), NonZeroU64::new(*to)) {
        let _ = fadvise(descriptor, 0, Some(length), Advice::WillNeed);
    }
}
