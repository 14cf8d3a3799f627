//! Invariants of the whole instance, when all daemons run and all messages have arrived.

use crate::clients::Client;
use crate::support::daemon::INSTANCE;
use crate::world::{STRIPE_BYTES, World};
use forebay_policy::layout::Layout;
use forebay_protocol::{FileKind, Ino, NodeIndex};
use forebay_store::node::Inode;
use forebay_store::objects::{ObjectId, Objects};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub fn layout(&self) -> Layout {
        Layout::new(self.hosts.len() as u16, STRIPE_BYTES).unwrap()
    }

    /// A client writes: synced data after `offset` does not count any more.
    pub fn write(&mut self, node: NodeIndex, object: ObjectId, offset: u64, data: &[u8]) -> bool {
        if let Some(synced) = self.synced.get_mut(&(node, object.ino)) {
            synced.truncate(offset as usize);
        }
        let objects = &self.host(node).daemon.objects;
        objects.write_object(object, offset, data).is_ok()
    }

    /// A file may be truncated to this length from now on.
    pub fn may_be_truncated(&mut self, ino: Ino, size: u64) {
        let layout = self.layout();
        for ((node, of), data) in &mut self.synced {
            if *of == ino {
                data.truncate(layout.object_length(ino, *node, size) as usize);
            }
        }
    }

    /// An object has been made durable.
    pub fn note_synced(&mut self, node: NodeIndex, ino: Ino) {
        let instance = INSTANCE;
        let objects = &self.host(node).daemon.objects;
        let data = objects.object_contents(ObjectId { instance, ino });
        self.synced.insert((node, ino), data.unwrap_or_default());
        let truncations: Vec<_> = self.clients.iter().filter_map(Client::truncation).collect();
        for (ino, size) in truncations {
            self.may_be_truncated(ino, size);
        }
    }

    fn inode(&self, ino: Ino) -> Option<&Inode> {
        self.volume(ino.metadata_node())?.names.get(ino)
    }

    /// Data that was synced on a node exists, as long as its file does.
    pub fn check_synced(&self, node: NodeIndex) {
        let objects = &self.host(node).daemon.objects;
        for ((at, ino), data) in &self.synced {
            if *at != node || self.inode(*ino).is_none() {
                continue;
            }
            let object = ObjectId { instance: INSTANCE, ino: *ino };
            let now = objects.object_contents(object).unwrap_or_default();
            assert!(
                now.len() >= data.len() && now[..data.len()] == data[..],
                "synced data of file {ino} is lost on node {node:?}"
            );
        }
    }

    /// Check everything.
    pub fn check(&self) {
        let mut inodes = BTreeMap::new();
        for node in self.nodes() {
            let volume = self.volume(node).unwrap();
            assert!(volume.prepared.is_empty(), "{:?}", volume.prepared);
            assert!(volume.decided.is_empty(), "{:?}", volume.decided);
            inodes.extend(volume.names.iter());
            self.check_synced(node);
        }
        self.check_names(&inodes);
        self.check_tree(&inodes);
        self.check_objects(&inodes);
        if !self.has_power_cuts {
            self.check_models(&inodes);
        }
    }

    /// Every name has an inode, and every inode as many names as it counts.
    fn check_names(&self, inodes: &BTreeMap<Ino, &Inode>) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        for (dir, inode) in inodes {
            let Some(entries) = inode.dir() else { continue };
            let mut dirs = 0;
            for (_, entry) in entries.after(0) {
                let child = inodes.get(&entry.ino);
                let child = child.unwrap_or_else(|| panic!("{dir}: no inode {}", entry.ino));
                assert_eq!(child.kind(), entry.kind);
                *names.entry(entry.ino).or_default() += 1;
                if let Some(below) = child.dir() {
                    dirs += 1;
                    assert_eq!(below.parent, *dir, "directory {} has another parent", entry.ino);
                }
            }
            assert_eq!(inode.nlink, 2 + dirs, "links of directory {dir}");
        }
        for (ino, inode) in inodes {
            let count = names.get(ino).copied().unwrap_or(0);
            match inode.kind() {
                FileKind::Dir if *ino == Ino::ROOT => assert_eq!(count, 0),
                FileKind::Dir => assert_eq!(count, 1, "places of directory {ino}"),
                _ => assert_eq!(count, inode.nlink, "names of file {ino}"),
            }
            assert!(inode.nlink > 0, "inode {ino} should have been dropped");
        }
    }

    /// Every directory can be reached from the root, by one path.
    fn check_tree(&self, inodes: &BTreeMap<Ino, &Inode>) {
        let mut seen = BTreeSet::new();
        let mut next = vec![Ino::ROOT];
        while let Some(dir) = next.pop() {
            assert!(seen.insert(dir), "directory {dir} is in two places");
            let entries = inodes[&dir].dir().unwrap().after(0);
            let dirs = entries.filter(|(_, entry)| entry.kind == FileKind::Dir);
            next.extend(dirs.map(|(_, entry)| entry.ino));
        }
        let all = inodes.iter().filter(|(_, inode)| inode.dir().is_some());
        for (dir, _) in all {
            assert!(seen.contains(dir), "directory {dir} cannot be reached");
        }
    }

    /// Every object has a file, and files are as long as their objects say.
    fn check_objects(&self, inodes: &BTreeMap<Ino, &Inode>) {
        let layout = self.layout();
        let mut sizes: BTreeMap<Ino, (u64, u64)> = BTreeMap::new();
        for node in self.nodes() {
            let objects = &self.host(node).daemon.objects;
            for (ino, space) in objects.list_objects(INSTANCE).unwrap() {
                assert!(inodes.contains_key(&ino), "object {ino} on {node:?} belongs to no file");
                let instance = INSTANCE;
                let size = objects.stat(ObjectId { instance, ino }).unwrap().size;
                let sum = sizes.entry(ino).or_default();
                sum.0 = sum.0.max(layout.file_end(ino, node, size));
                sum.1 += space;
            }
        }
        for (ino, inode) in inodes {
            let Some(length) = inode.length() else {
                continue;
            };
            assert!(length.known, "the length of file {ino} is not settled");
            let width = length.pieces.width(layout.nodes());
            for node in self.nodes().filter(|node| *node != ino.metadata_node()) {
                let id = ObjectId { instance: INSTANCE, ino: *ino };
                let has_object = self.host(node).daemon.objects.stat(id).is_ok();
                let is_recorded = layout.position(*ino, node) < width;
                assert!(is_recorded || !has_object, "{ino} has an object on {node:?}");
            }
            let found = sizes.get(ino).copied().unwrap_or_default();
            // A power cut undoes writes that were not synced, even after the length was settled.
            if !self.has_power_cuts {
                assert_eq!((length.size, length.space), found, "length of file {ino}");
            }
        }
    }

    /// Every client's directories and files are as its replies said.
    fn check_models(&self, inodes: &BTreeMap<Ino, &Inode>) {
        for client in &self.clients {
            for (dir, entries) in &client.model.dirs {
                let found = inodes[dir].dir().unwrap().after(0);
                let found: BTreeMap<_, _> = found
                    .map(|(_, entry)| (entry.name.to_vec(), (entry.ino, entry.kind)))
                    .collect();
                assert_eq!(*entries, found, "directory {dir}");
            }
            for (ino, size) in &client.sizes {
                if client.model.names_of(*ino) > 0 {
                    let length = inodes[ino].length().unwrap();
                    assert_eq!(length.size, *size, "length of file {ino}");
                }
            }
        }
    }
}
