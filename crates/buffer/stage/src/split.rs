//! Large files that all shares of a stage copy, each some parts, into one hidden file.
//!
//! The name of the hidden file depends on the attempt of the stage, so that no share takes parts of
//! an earlier attempt for those of this one. It gets its final name from share 0 when all parts are
//! on stable storage.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::context::StageContext;
use crate::end::{DirHandle, FileHandle, FileStat};
use crate::error::Failure;
use crate::journal::{Copied, NO_DIGEST};
use crate::large_file::LargeFile;
use crate::location::StageLocation;
use crate::open_copy::{Destination, OpenCopy};
use crate::publish::{check_unchanged, publish};
use crate::share::RunningShare;
use crate::tree::{CopyLocation, DirPair, DirTree, split_name};

/// Where a file that all shares copy is, on both sides.
#[derive(Clone)]
pub(crate) enum SplitPlace {
    /// In a directory of a tree.
    Tree { tree: Arc<DirTree>, directory: Arc<Path>, name: OsString },
    /// An item of the request.
    Single { source: StageLocation, target: StageLocation },
}

/// A file that all shares copy.
#[derive(Clone)]
pub(crate) struct SplitFile {
    pub place: SplitPlace,
    pub journal_key: PathBuf,
    /// The source when it was opened.
    pub stat: FileStat,
}

/// A file on both sides.
struct Ends {
    source: Box<dyn FileHandle>,
    parent: Arc<dyn DirHandle>,
    name: OsString,
}

impl SplitPlace {
    fn location(&self) -> CopyLocation {
        match self.clone() {
            SplitPlace::Tree { tree, directory, name } => {
                CopyLocation::Tree { tree, directory, name }
            }
            SplitPlace::Single { target, .. } => CopyLocation::Single(target),
        }
    }

    /// The path of the source, for messages.
    pub fn source_path(&self) -> PathBuf {
        match self {
            SplitPlace::Tree { tree, directory, name } => {
                tree.source_path.join(directory).join(name)
            }
            SplitPlace::Single { source, .. } => source.display(),
        }
    }

    fn open(&self) -> Result<Ends, Failure> {
        match self {
            SplitPlace::Tree { tree, directory, name } => {
                let here = DirPair::open(tree, directory)?;
                let source = here.source.open(name, None);
                let source = source.map_err(|e| Failure::source("opening it", e))?;
                Ok(Ends { source, parent: here.target, name: name.clone() })
            }
            SplitPlace::Single { source, target } => {
                let (parent, name) = target.open_parent()?;
                Ok(Ends { source: source.open_file()?, parent: Arc::from(parent), name })
            }
        }
    }
}

/// Queues the parts of a large file that are this share's; share `first` copies the first part.
pub(crate) fn queue_split_file(
    ctx: &StageContext<'_>,
    share: &RunningShare<'_>,
    place: SplitPlace,
    (source, stat): (Box<dyn FileHandle>, FileStat),
    to: Destination,
    first: u64,
) -> Result<(), Failure> {
    let creating = |e| Failure::target("creating its copy", e);
    let hidden_name = split_name(&to.name, share.share.key);
    let journal_key = to.journal_key.clone();
    let own = share.own_parts(first, stat.size.div_ceil(ctx.segment_bytes()));
    if ctx.durability.is_share_complete() {
        let (CompleteCopy::Hidden(found) | CompleteCopy::Named(found)) =
            find_complete(&*to.parent, &hidden_name, &to.name, &stat)?;
        share.see_split(SplitFile { place, journal_key, stat }, found.inode.1);
        ctx.progress.copied.add_bytes(share.own_bytes(first, stat.size, ctx.segment_bytes()));
        return Ok(());
    }
    let hidden = to.parent.create_shared(&hidden_name).map_err(creating)?;
    let found = hidden.stat().map_err(creating)?;
    share.see_split(SplitFile { place, journal_key, stat }, found.inode.1);
    if found.size < stat.size {
        hidden.truncate(stat.size).map_err(creating)?;
    }
    // Parts of another attempt are not in this hidden file.
    let key = Path::new(&format!("split-{:016x}", share.share.key)).join(&to.journal_key);
    let location = to.location.with_name(&hidden_name);
    let to = Destination { journal_key: key, location, ..to };
    let copy = OpenCopy::of_hidden(source, stat, to, hidden, hidden_name);
    ctx.large_files.push(LargeFile::of_share(copy, own, share.share.count.into()));
    Ok(())
}

/// A copy of a file of which an interrupted run of this share has completed its parts.
enum CompleteCopy {
    /// It has its hidden name.
    Hidden(FileStat),
    /// It has its final name.
    Named(FileStat),
}

fn find_complete(
    parent: &dyn DirHandle,
    hidden_name: &OsStr,
    name: &OsStr,
    stat: &FileStat,
) -> Result<CompleteCopy, Failure> {
    let looking = |e| Failure::target("looking for its copy", e);
    let named = match parent.lstat(hidden_name) {
        Ok(found) => return Ok(CompleteCopy::Hidden(found)),
        Err(Errno::NOENT) => parent.lstat(name),
        Err(errno) => return Err(looking(errno)),
    };
    let lost = || {
        let reason = "its incomplete copy was removed; stage it again";
        Failure::File(reason.to_owned(), Errno::NOENT)
    };
    match named {
        Ok(found) if Copied::of(stat, NO_DIGEST.to_owned()).is_like_copy(&found) => {
            Ok(CompleteCopy::Named(found))
        }
        Ok(_) | Err(Errno::NOENT) => Err(lost()),
        Err(errno) => Err(looking(errno)),
    }
}

/// Ends the copying of this share's parts of a file.
pub(crate) fn complete_own_parts(ctx: &StageContext<'_>, large: &LargeFile) -> Result<(), Failure> {
    let copy = &large.copy;
    let parts = large.take_copied_parts();
    check_unchanged(copy)?;
    if copy.hidden.needs_fdatasync() {
        copy.hidden.fdatasync().map_err(|e| Failure::target("syncing its copy", e))?;
    }
    let parts = parts.into_iter().map(|part| (part.pieces, part.digest));
    ctx.queue_read_back(&copy.to.location, parts);
    Ok(())
}

/// Gives a file of which all parts are on stable storage its attributes and its name.
pub(crate) fn publish_split_file(
    ctx: &StageContext<'_>,
    key: u64,
    file: &SplitFile,
) -> Result<(), Failure> {
    let completing = |e| Failure::target("completing its copy", e);
    let Ends { source, parent, name } = file.place.open()?;
    let hidden_name = split_name(&name, key);
    match find_complete(&*parent, &hidden_name, &name, &file.stat)? {
        CompleteCopy::Hidden(_) => {}
        CompleteCopy::Named(_) => {
            ctx.count_file(file.stat.size);
            return Ok(());
        }
    }
    let hidden = parent.create_shared(&hidden_name).map_err(completing)?;
    if hidden.stat().map_err(completing)?.size != file.stat.size {
        let reason = "another program has changed its incomplete copy; stage it again";
        return Err(Failure::File(reason.to_owned(), Errno::BUSY));
    }
    let to = Destination {
        parent,
        name,
        journal_key: file.journal_key.clone(),
        source_path: file.place.source_path(),
        location: file.place.location(),
    };
    let copy = OpenCopy::of_hidden(source, file.stat, to, hidden, hidden_name);
    publish(ctx, &copy, NO_DIGEST.to_owned())
}

/// Removes the incomplete copies of files of all shares. Other shares do the same, so that the last
/// one that opens a copy removes it.
pub(crate) fn remove_split_files(key: u64, files: &[SplitFile]) {
    for file in files {
        let opened = match &file.place {
            SplitPlace::Tree { tree, directory, name } => {
                DirPair::open(tree, directory).map(|here| (here.target, name.clone()))
            }
            SplitPlace::Single { target, .. } => {
                let opened = target.open_parent().map_err(Failure::from);
                opened.map(|(parent, name)| (Arc::from(parent), name))
            }
        };
        if let Ok((parent, name)) = opened {
            let _ = parent.unlink(&split_name(&name, key));
        }
    }
}
