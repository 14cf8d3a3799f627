//! The tags of inode numbers, which storage nodes send to a client that they do not trust.

use forebay_protocol::{Ino, InodeTag, Request};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of tags in each of two generations. An inode that was not used while as many others
/// were looked up is forgotten, and its number is `ESTALE` until its name is looked up again.
const MAX_TAGS: usize = 1 << 19;

/// The tags of a client on all nodes of an instance. It is empty if the nodes trust the client.
#[derive(Debug, Default)]
pub struct InodeTags {
    generations: Mutex<Generations>,
    is_used: AtomicBool,
}

#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<Ino, InodeTag>,
    older: HashMap<Ino, InodeTag>,
}

impl Generations {
    fn insert(&mut self, ino: Ino, tag: InodeTag) {
        if self.recent.len() >= MAX_TAGS {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(ino, tag);
    }

    /// A tag, which is kept as one of the recent.
    fn get(&mut self, ino: Ino) -> Option<InodeTag> {
        if let Some(tag) = self.recent.get(&ino) {
            return Some(*tag);
        }
        let tag = self.older.get(&ino).copied()?;
        self.insert(ino, tag);
        Some(tag)
    }
}

impl InodeTags {
    /// Keep the tags of a reply.
    pub fn insert_all(&self, tags: impl IntoIterator<Item = (Ino, InodeTag)>) {
        self.is_used.store(true, Ordering::Release);
        let mut generations = self.generations.lock();
        tags.into_iter().for_each(|(ino, tag)| generations.insert(ino, tag));
    }

    /// The tag of an inode, if it is known.
    pub fn get(&self, ino: Ino) -> Option<InodeTag> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        self.generations.lock().get(ino)
    }

    /// Whether nodes refuse the number of an inode only because its tag is not known any more.
    pub fn lacks(&self, ino: Ino) -> bool {
        self.is_used.load(Ordering::Acquire) && self.get(ino).is_none()
    }

    /// The tags to send with a request, in the order of its inodes. An unknown one is sent as 0, which
    /// the node refuses unless it is that of the root.
    pub fn of(&self, request: &Request) -> Vec<InodeTag> {
        if !self.is_used.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut generations = self.generations.lock();
        let inos = request.inodes().into_iter();
        inos.map(|ino| generations.get(ino).unwrap_or_default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_bounded_and_used_ones_are_kept() {
        let tags = InodeTags::default();
        assert_eq!((tags.get(Ino(2)), tags.lacks(Ino(2))), (None, false), "nodes trust the client");
        for number in 2..(3 * MAX_TAGS as u64) {
            tags.insert_all([(Ino(number), InodeTag(number))]);
            if number % 1000 == 0 {
                assert_eq!(tags.get(Ino(2)), Some(InodeTag(2)), "{number}");
            }
        }
        assert!(tags.lacks(Ino(3)) && !tags.lacks(Ino(2)));
        let generations = tags.generations.lock();
        assert!(generations.recent.len() <= MAX_TAGS && generations.older.len() <= MAX_TAGS);
        assert!(
            !generations.recent.contains_key(&Ino(3)) && !generations.older.contains_key(&Ino(3))
        );
    }
}
