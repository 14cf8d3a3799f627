//! The expected state of a client's own directories.

use forebay_protocol::message::OnExisting;
use forebay_protocol::{Errno, FileKind, Ino};
use std::collections::BTreeMap;

pub type Name = Vec<u8>;

/// Directories and their entries.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub dirs: BTreeMap<Ino, BTreeMap<Name, (Ino, FileKind)>>,
}

impl Model {
    pub fn get(&self, dir: Ino, name: &[u8]) -> Option<(Ino, FileKind)> {
        self.dirs.get(&dir)?.get(name).copied()
    }

    pub fn set(&mut self, dir: Ino, name: &[u8], what: (Ino, FileKind)) {
        if what.1 == FileKind::Dir {
            self.dirs.entry(what.0).or_default();
        }
        let entries = self.dirs.entry(dir).or_default();
        entries.insert(name.to_vec(), what);
    }

    pub fn take(&mut self, dir: Ino, name: &[u8]) -> Option<(Ino, FileKind)> {
        let what = self.dirs.get_mut(&dir)?.remove(name)?;
        Some(what)
    }

    /// Number of names of an inode that is not a directory.
    pub fn names_of(&self, ino: Ino) -> u32 {
        let all = self.dirs.values().flat_map(BTreeMap::values);
        all.filter(|(other, _)| *other == ino).count() as u32
    }

    /// The expected link count of a directory.
    pub fn links_of(&self, dir: Ino) -> u32 {
        let entries = self.dirs[&dir].values();
        2 + entries.filter(|(_, kind)| *kind == FileKind::Dir).count() as u32
    }

    /// Whether `dir` is the directory `above` or below it.
    fn is_below(&self, dir: Ino, above: Ino) -> bool {
        dir == above
            || self.dirs.get(&above).is_some_and(|entries| {
                entries
                    .values()
                    .any(|(ino, kind)| *kind == FileKind::Dir && self.is_below(dir, *ino))
            })
    }

    /// Rename as POSIX says, or return the errors that are possible.
    pub fn rename(
        &mut self,
        (from, name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        existing: OnExisting,
    ) -> Result<(), Vec<Errno>> {
        let moving = self.get(from, name).ok_or(vec![Errno::ENOENT])?;
        let target = self.get(to, to_name);
        let mut errors = Vec::new();
        if moving.1 == FileKind::Dir && self.is_below(to, moving.0) {
            errors.push(Errno::EINVAL);
        }
        match (existing, target) {
            (OnExisting::Fail, Some(_)) => errors.push(Errno::EEXIST),
            (OnExisting::Exchange, None) => errors.push(Errno::ENOENT),
            (OnExisting::Exchange, Some((ino, FileKind::Dir))) if self.is_below(from, ino) => {
                errors.push(Errno::EINVAL);
            }
            (OnExisting::Replace, Some((ino, kind))) if ino != moving.0 => {
                match (moving.1 == FileKind::Dir, kind == FileKind::Dir) {
                    (true, false) => errors.push(Errno::ENOTDIR),
                    (false, true) => errors.push(Errno::EISDIR),
                    (true, true) if !self.dirs[&ino].is_empty() => {
                        errors.push(Errno::ENOTEMPTY);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if target.is_some_and(|(ino, _)| ino == moving.0) {
            return Ok(());
        }
        self.take(from, name);
        if let (OnExisting::Exchange, Some(other)) = (existing, target) {
            self.set(from, name, other);
        } else if let Some((ino, FileKind::Dir)) = target {
            self.dirs.remove(&ino);
        }
        self.set(to, to_name, moving);
        Ok(())
    }
}
