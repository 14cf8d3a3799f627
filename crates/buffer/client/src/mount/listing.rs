//! The listing of a directory in the cache of a mount, and changes of single entries since it was read.

use super::attribute_cache::Moment;
use crate::fs::DirPage;
use forebay_protocol::Ino;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of names that were created since a directory was read.
const MAX_CREATED: usize = 1 << 12;

/// All entries of a directory.
#[derive(Debug)]
pub struct Listing {
    pub page: Arc<DirPage>,
    /// The last moment at which neither the directory nor an inode in it had changed.
    pub unchanged_at: Option<Moment>,
    /// The moment at which the names, except those that were created since, were those of the directory.
    pub names_at: Moment,
    /// Entries were created or removed since the directory was read, so that it answers for single names
    /// only.
    pub is_changed: bool,
    /// Made when an entry is first looked for.
    positions: Option<Positions>,
}

impl Listing {
    /// A listing that was requested after `read_at`.
    pub fn new(page: Arc<DirPage>, unchanged_at: Option<Moment>, read_at: Moment) -> Listing {
        Listing { page, unchanged_at, names_at: read_at, is_changed: false, positions: None }
    }

    /// Where its entries are.
    pub fn positions(&mut self) -> &mut Positions {
        let Listing { page, positions, .. } = self;
        positions.get_or_insert_with(|| Positions::new(page))
    }

    /// Applies a change of an entry, after which names are known from `now` on. `false`: too many have
    /// been created.
    pub fn apply(&mut self, change: EntryChange, now: Moment) -> bool {
        (self.is_changed, self.unchanged_at, self.names_at) = (true, None, now);
        let page = self.page.clone();
        let positions = self.positions();
        let (name, is_created) = match change {
            EntryChange::Created(name) => (name, true),
            EntryChange::Removed(name) => (name, false),
        };
        if let Some(position) = positions.names.remove(&name) {
            positions.inos.remove(&page.entries[position].ino);
        }
        if is_created {
            positions.created.insert(name);
        } else {
            positions.created.remove(&name);
        }
        positions.created.len() <= MAX_CREATED
    }
}

/// A change of one entry of a directory.
#[derive(Debug)]
pub enum EntryChange {
    /// Of this name, if it did not exist.
    Created(Vec<u8>),
    /// Of this name.
    Removed(Vec<u8>),
}

/// Positions of entries in a listing.
#[derive(Debug)]
pub struct Positions {
    names: HashMap<Vec<u8>, usize>,
    inos: HashMap<Ino, usize>,
    /// Names that were created since, of which nothing else is known.
    created: HashSet<Vec<u8>>,
}

impl Positions {
    /// The position of a name; `Some(None)`: there is no such name; `None`: that is not known.
    pub fn of_name(&self, name: &[u8]) -> Option<Option<usize>> {
        let is_known = !self.created.contains(name);
        is_known.then(|| self.names.get(name).copied())
    }

    /// The position of a name of an inode.
    pub fn of_inode(&self, ino: Ino) -> Option<usize> {
        self.inos.get(&ino).copied()
    }

    fn new(page: &DirPage) -> Positions {
        let entries = || page.entries.iter().enumerate();
        Positions {
            names: entries().map(|(position, entry)| (entry.name.clone(), position)).collect(),
            inos: entries().map(|(position, entry)| (entry.ino, position)).collect(),
            created: HashSet::new(),
        }
    }
}
