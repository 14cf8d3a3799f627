//! Directories that exist on both sides, and the names of copies.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::end::DirHandle;
use crate::error::Failure;
use crate::location::{StageLocation, open_dir_below};

/// Prefix of the names of incomplete files.
pub(crate) const HIDDEN_PREFIX: &str = ".forebay-stage-";
/// Temporary name of a hard link that replaces a file.
pub(crate) const HIDDEN_LINK_NAME: &str = ".forebay-stage-link";

/// The name of an incomplete copy of the file `name`. It depends on `name` only, so that a restarted
/// stage finds the file.
pub(crate) fn hidden_name(name: &OsStr) -> OsString {
    let digest = blake3::hash(name.as_bytes()).to_hex();
    OsString::from(format!("{HIDDEN_PREFIX}{}", digest.get(..32).unwrap_or_default()))
}

/// The name of an incomplete copy of the file `name` to which all shares of an attempt of a stage
/// write, which have this key.
pub(crate) fn split_name(name: &OsStr, key: u64) -> OsString {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&key.to_le_bytes());
    hasher.update(name.as_bytes());
    let digest = hasher.finalize().to_hex();
    OsString::from(format!("{HIDDEN_PREFIX}{}", digest.get(..32).unwrap_or_default()))
}

/// The name of a damaged copy of the file `name` until the file is copied again. It differs from
/// that of an incomplete copy, because nothing of a damaged copy may be reused.
pub(crate) fn damaged_name(name: &OsStr) -> OsString {
    let mut damaged = hidden_name(name);
    damaged.push("-damaged");
    damaged
}

/// Creates an entry under the name `hidden` by `create`, and renames it to `name`, replacing what
/// has that name. An interrupted stage may have left `hidden`.
pub(crate) fn replace_entry(
    dir: &dyn DirHandle,
    hidden: &OsStr,
    name: &OsStr,
    create: impl Fn(&OsStr) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match create(hidden) {
        Err(Errno::EXIST) => {
            dir.unlink(hidden)?;
            create(hidden)?;
        }
        outcome => outcome?,
    }
    dir.rename(hidden, name)
}

/// A directory tree that is copied.
pub(crate) struct DirTree {
    /// The index of the item in the request; part of its journal keys.
    pub index: usize,
    pub source: Box<dyn DirHandle>,
    pub target: Box<dyn DirHandle>,
    /// For messages.
    pub source_path: PathBuf,
    /// For messages about copies.
    pub target_path: PathBuf,
    /// Whether this stage created the target.
    pub created: bool,
}

impl DirTree {
    /// The journal key of the entry `name` of `directory`.
    pub fn journal_key(&self, directory: &Path, name: &OsStr) -> PathBuf {
        debug_assert!(directory.is_relative(), "paths are relative to the tree");
        Path::new(&self.index.to_string()).join(directory).join(name)
    }
}

/// The same directory of a tree on both sides.
pub(crate) struct DirPair {
    tree: usize,
    path: Arc<Path>,
    pub source: Arc<dyn DirHandle>,
    pub target: Arc<dyn DirHandle>,
}

impl DirPair {
    /// Opens `path` of `tree` on both sides, unless it is the directory that `last` holds.
    pub fn open_cached<'d>(
        last: &'d mut Option<DirPair>,
        tree: &DirTree,
        path: &Arc<Path>,
    ) -> Result<&'d DirPair, Failure> {
        let same = last.as_ref().is_some_and(|d| d.tree == tree.index && d.path == *path);
        if !same {
            *last = Some(DirPair::open(tree, path)?);
        }
        last.as_ref().ok_or_else(|| Failure::Fatal("no directory is open".to_owned(), Errno::IO))
    }

    pub fn open(tree: &DirTree, path: &Arc<Path>) -> Result<DirPair, Failure> {
        let source = open_dir_below(&*tree.source, path)
            .map_err(|e| Failure::source("opening its directory", e))?;
        let target = open_dir_below(&*tree.target, path)
            .map_err(|e| Failure::target("opening the copy of its directory", e))?;
        let (source, target) = (Arc::from(source), Arc::from(target));
        Ok(DirPair { tree: tree.index, path: path.clone(), source, target })
    }
}

/// The location of a copy.
#[derive(Clone)]
pub(crate) enum CopyLocation {
    /// In a directory of a tree.
    Tree { tree: Arc<DirTree>, directory: Arc<Path>, name: OsString },
    /// At a path of its own.
    Single(StageLocation),
}

impl CopyLocation {
    /// Whether it is the hidden file to which several movers copy.
    pub fn is_hidden(&self) -> bool {
        let is_hidden = |name: &OsStr| name.as_bytes().starts_with(HIDDEN_PREFIX.as_bytes());
        match self {
            CopyLocation::Tree { name, .. } => is_hidden(name),
            CopyLocation::Single(path) => path.file_name().is_some_and(is_hidden),
        }
    }

    /// Another file in the same directory.
    pub fn with_name(&self, name: &OsStr) -> CopyLocation {
        match self {
            CopyLocation::Tree { tree, directory, .. } => CopyLocation::Tree {
                tree: tree.clone(),
                directory: directory.clone(),
                name: name.to_owned(),
            },
            CopyLocation::Single(path) => CopyLocation::Single(path.with_file_name(name)),
        }
    }

    /// The path, for messages.
    pub fn display(&self) -> PathBuf {
        match self {
            CopyLocation::Tree { tree, directory, name } => {
                tree.target_path.join(directory).join(name)
            }
            CopyLocation::Single(path) => path.display(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_fit_in_any_file_system() {
        let longest = OsString::from("n".repeat(255));
        assert!(damaged_name(&longest).len() <= 255);
        assert_ne!(damaged_name(&longest), hidden_name(&longest));
    }
}
