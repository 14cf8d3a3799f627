//! Attributes, also of what lies on several nodes.
//!
//! A directory's home knows the names in it, an inode's home its attributes, and while a file is
//! open for writing only its data objects know its length.

use super::{DirPage, Fs};
use forebay_wire::message::Entry;
use forebay_wire::place::ObjectInfo;
use forebay_wire::{Attr, Errno, Ino, Node, Reply, Request};
use std::time::{Duration, Instant};

/// How often a name is looked up again that others keep changing.
const TRIES: u32 = 100;

impl Fs {
    /// Make a request of `node` that is answered with attributes, and say how long they may be
    /// believed.
    pub(crate) fn attr_for(&self, node: Node, request: Request) -> Result<(Attr, Duration), Errno> {
        let said = self.said(node, request)?;
        match said.reply {
            Reply::Attr(attr) => self.complete_for(attr, said.valid),
            Reply::Elsewhere { ino, .. } => self.attr_of(ino),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Attributes of an inode, and how long they may be believed.
    pub(crate) fn attr_of(&self, ino: Ino) -> Result<(Attr, Duration), Errno> {
        let request = Request::GetAttr { ino };
        let said = self.said(ino.shard(), request)?;
        match said.reply {
            Reply::Attr(attr) => self.complete_for(attr, said.valid),
            _ => Err(Errno::EPROTO),
        }
    }

    /// What `name` is, or that it is nothing, and how long either may be believed.
    pub(crate) fn lookup_for(
        &self,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Option<Attr>, Duration), Errno> {
        let mut tries = 0;
        loop {
            let request = Request::Lookup {
                parent,
                name: name.to_vec(),
            };
            let said = self.ask(parent.shard(), request)?;
            let heard = Instant::now();
            let ino = match said.reply {
                Reply::Attr(attr) => {
                    let (attr, valid) = self.complete_for(attr, said.valid)?;
                    return Ok((Some(attr), valid));
                }
                Reply::Failed(Errno::ENOENT) => return Ok((None, said.valid)),
                Reply::Failed(errno) => return Err(errno),
                Reply::Elsewhere { ino, .. } => ino,
                _ => return Err(Errno::EPROTO),
            };
            match self.attr_of(ino) {
                // It went between the two questions; the name may be something else by now.
                Err(Errno::ESTALE | Errno::ENOENT) if tries < TRIES => tries += 1,
                other => {
                    let (attr, valid) = other?;
                    let named = said.valid.saturating_sub(heard.elapsed());
                    return Ok((Some(attr), valid.min(named)));
                }
            }
        }
    }

    /// As [`complete`](Fs::complete), for an answer that might have been believed for `valid`.
    fn complete_for(&self, attr: Attr, valid: Duration) -> Result<(Attr, Duration), Errno> {
        if attr.unsettled.is_none() {
            return Ok((attr, valid));
        }
        let heard = Instant::now();
        let attr = self.complete(attr)?;
        Ok((attr, valid.saturating_sub(heard.elapsed())))
    }

    /// Have the data objects say what the inode's home does not know.
    pub(crate) fn complete(&self, mut attr: Attr) -> Result<Attr, Errno> {
        if attr.unsettled.is_none() {
            return Ok(attr);
        }
        let objects = self.objects_of(attr.ino)?;
        attr.settle(&self.sessions.layout(), objects);
        Ok(attr)
    }

    /// What the data objects of a striped file say, on all nodes; `None` where there is none.
    pub(crate) fn objects_of(&self, ino: Ino) -> Result<Vec<(Node, Option<ObjectInfo>)>, Errno> {
        let ask = self
            .sessions
            .nodes()
            .map(|node| (node, Request::StatObject { ino }));
        let mut objects = Vec::with_capacity(usize::from(self.sessions.layout().nodes()));
        let mut failed = None;
        self.sessions
            .each(None, ask, |node, said| match said.map(|said| said.reply) {
                Ok(Reply::Object(object)) => objects.push((node, object)),
                Ok(_) => failed = Some(Errno::EPROTO),
                Err(errno) => failed = Some(errno),
            });
        failed.map_or(Ok(objects), Err)
    }

    /// Put in the attributes that the directory's home could not give. Entries whose inode went
    /// meanwhile stay without. Returns for how long the entries may be believed, of `valid`.
    fn complete_page(&self, entries: &mut [Entry], valid: Duration) -> Result<Duration, Errno> {
        let mut until = Instant::now() + valid;
        let mut missing: Vec<usize> = (0..entries.len())
            .filter(|at| entries[*at].attr.is_none())
            .collect();
        missing.sort_by_key(|at| entries[*at].ino.shard());
        // One question at a time to each node: every node has a queue of its own.
        let mut queues: Vec<Vec<usize>> = missing
            .chunk_by(|a, b| entries[*a].ino.shard() == entries[*b].ino.shard())
            .map(|queue| queue.iter().rev().copied().collect())
            .collect();
        let mut failed = None;
        while failed.is_none() && !queues.is_empty() {
            let wave: Vec<usize> = queues.iter_mut().filter_map(Vec::pop).collect();
            queues.retain(|queue| !queue.is_empty());
            let inodes: Vec<Ino> = wave.iter().map(|at| entries[*at].ino).collect();
            let ask = inodes
                .iter()
                .map(|ino| (ino.shard(), Request::GetAttr { ino: *ino }));
            let mut places = wave.iter();
            self.sessions.each(self.caller.as_ref(), ask, |_, said| {
                let entry = places.next().and_then(|at| entries.get_mut(*at));
                let valid = said.as_ref().map_or(Duration::ZERO, |said| said.valid);
                until = until.min(Instant::now() + valid);
                match (said.map(|said| said.reply), entry) {
                    (Ok(Reply::Attr(attr)), Some(entry)) => entry.attr = Some(attr),
                    (Err(Errno::ESTALE | Errno::ENOENT), _) => {}
                    (Err(errno), _) => failed = Some(errno),
                    _ => failed = Some(Errno::EPROTO),
                }
            });
        }
        for attr in entries.iter_mut().filter_map(|entry| entry.attr.as_mut()) {
            *attr = self.complete(*attr)?;
        }
        match failed {
            Some(errno) => Err(errno),
            None => Ok(until.saturating_duration_since(Instant::now())),
        }
    }

    /// Entries behind `cookie`, some `bytes` of them, with attributes if `attrs`; an entry that
    /// goes while it is read may have none all the same.
    pub fn read_dir(
        &self,
        ino: Ino,
        cookie: u64,
        bytes: u32,
        attrs: bool,
    ) -> Result<DirPage, Errno> {
        let request = Request::ReadDir {
            ino,
            cookie,
            bytes,
            attrs,
        };
        let said = self.said(ino.shard(), request)?;
        let Reply::Entries { mut entries, end } = said.reply else {
            return Err(Errno::EPROTO);
        };
        let valid = if attrs {
            self.complete_page(&mut entries, said.valid)?
        } else {
            said.valid
        };
        Ok(DirPage {
            entries,
            end,
            valid,
        })
    }
}
