//! Open handles of a volume's clients.

use forebay_protocol::message::OpenMode;
use forebay_protocol::{Errno, HandleId, Ino, SessionId};
use std::collections::BTreeMap;

/// Space granted ahead of need at a writer's first request, in bytes.
const FIRST_GRANT_AHEAD: u64 = 1 << 20;
/// Largest grant ahead of need, in bytes.
const MAX_GRANT_AHEAD: u64 = 64 << 20;

/// An open file or directory.
#[derive(Debug)]
pub struct Handle {
    pub ino: Ino,
    pub mode: OpenMode,
    /// It is a handle of a data object only.
    pub is_piece: bool,
    /// It is a write handle of a striped file whose metadata is here, counted in [`Handles::writers`].
    pub is_counted_writer: bool,
    /// No write through it is carried out any more.
    pub is_fenced: bool,
    grant: u64,
    grant_ahead: u64,
}

impl Handle {
    /// A handle of an inode whose metadata is here. `is_striped`: it is a striped file, if it is opened for
    /// writing.
    pub fn of_inode(ino: Ino, mode: OpenMode, is_striped: bool) -> Handle {
        Handle {
            ino,
            mode,
            is_piece: false,
            is_counted_writer: mode.write && is_striped,
            is_fenced: false,
            grant: 0,
            grant_ahead: FIRST_GRANT_AHEAD,
        }
    }

    /// A handle of the data object of a file whose metadata may be on another node.
    pub fn of_piece(ino: Ino, mode: OpenMode) -> Handle {
        Handle { is_piece: true, ..Handle::of_inode(ino, mode, false) }
    }

    /// Whether it permits writes, and is not only of a data object.
    fn is_writer(&self) -> bool {
        self.mode.write && !self.is_piece
    }

    /// Bytes granted to the writer, and how many to grant ahead the next time.
    pub fn grant(&self) -> (u64, u64) {
        (self.grant, self.grant_ahead)
    }

    /// Note what the writer has been granted. The next grant ahead of need is twice as large.
    pub fn set_grant(&mut self, bytes: u64) {
        self.grant = bytes;
        self.grant_ahead = (self.grant_ahead * 2).min(MAX_GRANT_AHEAD);
    }
}

/// All open handles of a volume.
#[derive(Debug, Default)]
pub struct Handles {
    /// The handles of every attached session.
    sessions: BTreeMap<SessionId, BTreeMap<HandleId, Handle>>,
    /// Handles of each inode.
    open: BTreeMap<Ino, u32>,
    /// Write handles of each striped file whose metadata is here.
    writers: BTreeMap<Ino, u32>,
    /// Write handles of each file whose metadata is here, striped or not.
    open_for_writing: BTreeMap<Ino, u32>,
    /// Handles that hold the right to append to their files.
    appenders: BTreeMap<Ino, (SessionId, HandleId)>,
    /// The number of all handles.
    count: usize,
}

impl Handles {
    /// A session attaches.
    pub fn attach(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default();
    }

    /// A session is over. Its handles have been closed.
    pub fn detach(&mut self, session: SessionId) {
        let handles = self.sessions.remove(&session);
        assert!(
            handles.is_none_or(|handles| handles.is_empty()),
            "a session that ends has closed its handles"
        );
    }

    /// The handles of a session.
    pub fn of_session(&self, session: SessionId) -> impl Iterator<Item = HandleId> {
        self.sessions.get(&session).into_iter().flat_map(|handles| handles.keys().copied())
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// A handle. `ESTALE`: there is no such session; `EBADF`: it has no such handle.
    pub fn get(&self, session: SessionId, id: HandleId) -> Result<&Handle, Errno> {
        let handles = self.sessions.get(&session).ok_or(Errno::ESTALE)?;
        handles.get(&id).ok_or(Errno::EBADF)
    }

    /// As [`get`](Handles::get).
    pub fn get_mut(&mut self, session: SessionId, id: HandleId) -> Result<&mut Handle, Errno> {
        let handles = self.sessions.get_mut(&session).ok_or(Errno::ESTALE)?;
        handles.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Check that a session may open the handle `id`: `EMFILE` if it has `max` others.
    pub fn check_limit(&self, session: SessionId, id: HandleId, max: usize) -> Result<(), Errno> {
        let handles = self.sessions.get(&session).ok_or(Errno::ESTALE)?;
        if handles.len() >= max && !handles.contains_key(&id) { Err(Errno::EMFILE) } else { Ok(()) }
    }

    /// Whether the handle `id` is open already, on the inode `ino`. `EINVAL`: it is open on another
    /// one; `EMFILE`: it is not open, and the session has `max` others.
    pub fn is_open_as(
        &self,
        session: SessionId,
        id: HandleId,
        ino: Ino,
        max: usize,
    ) -> Result<bool, Errno> {
        self.check_limit(session, id, max)?;
        match self.get(session, id) {
            Ok(known) if known.ino == ino => Ok(true),
            Ok(_) => Err(Errno::EINVAL),
            Err(Errno::EBADF) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Add a handle that is not open.
    pub fn insert(&mut self, session: SessionId, id: HandleId, handle: Handle) {
        *self.open.entry(handle.ino).or_default() += 1;
        if handle.is_counted_writer {
            *self.writers.entry(handle.ino).or_default() += 1;
        }
        if handle.is_writer() {
            *self.open_for_writing.entry(handle.ino).or_default() += 1;
        }
        let handles = self.sessions.entry(session).or_default();
        let replaced = handles.insert(id, handle);
        assert!(replaced.is_none(), "a handle is opened once");
        self.count += 1;
    }

    /// Remove a handle; `None` if it is not open.
    pub fn remove(&mut self, session: SessionId, id: HandleId) -> Option<Handle> {
        let handle = self.sessions.get_mut(&session)?.remove(&id)?;
        self.uncount(&handle);
        Some(handle)
    }

    /// Remove any one of a session's handles.
    pub fn pop(&mut self, session: SessionId) -> Option<(HandleId, Handle)> {
        let (id, handle) = self.sessions.get_mut(&session)?.pop_first()?;
        self.uncount(&handle);
        Some((id, handle))
    }

    fn uncount(&mut self, handle: &Handle) {
        self.count -= 1;
        decrement(&mut self.open, handle.ino);
        if handle.is_counted_writer {
            decrement(&mut self.writers, handle.ino);
        }
        if handle.is_writer() {
            decrement(&mut self.open_for_writing, handle.ino);
        }
    }

    pub fn is_open(&self, ino: Ino) -> bool {
        self.open.contains_key(&ino)
    }

    /// Whether any other session has a file open.
    pub fn is_open_elsewhere(&self, ino: Ino, session: SessionId) -> bool {
        let own = self.sessions.get(&session).into_iter().flat_map(BTreeMap::values);
        let own = own.filter(|handle| handle.ino == ino).count();
        let all = self.open.get(&ino).map_or(0, |count| *count as usize);
        assert!(own <= all, "a session's handles are counted");
        own < all
    }

    /// Whether a striped file whose metadata is here is open for writing.
    pub fn is_written(&self, ino: Ino) -> bool {
        self.writers.contains_key(&ino)
    }

    /// Whether a file whose metadata is here is open for writing, striped or not.
    pub fn is_open_for_writing(&self, ino: Ino) -> bool {
        self.open_for_writing.contains_key(&ino)
    }

    /// Whether another handle holds the right to append to a handle's file.
    pub fn append_is_blocked(&self, session: SessionId, id: HandleId) -> bool {
        let Ok(handle) = self.get(session, id) else {
            return false;
        };
        let holder = self.appenders.get(&handle.ino);
        holder.is_some_and(|holder| *holder != (session, id))
    }

    /// Give a handle the right to append to its file. `EBADF`: it is not open for writing.
    pub fn lock_append(&mut self, session: SessionId, id: HandleId) -> Result<(), Errno> {
        let handle = self.get(session, id)?;
        if !handle.mode.write {
            return Err(Errno::EBADF);
        }
        let ino = handle.ino;
        self.appenders.insert(ino, (session, id));
        Ok(())
    }

    /// Take the right to append to a file from a handle. `false`: it does not hold it.
    pub fn unlock_append(&mut self, ino: Ino, holder: (SessionId, HandleId)) -> bool {
        let holds = self.appenders.get(&ino) == Some(&holder);
        if holds {
            self.appenders.remove(&ino);
        }
        holds
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// The inodes that are open with their metadata, not only as data objects.
    pub fn open_inodes(&self) -> impl Iterator<Item = Ino> {
        let handles = self.sessions.values().flat_map(BTreeMap::values);
        handles.filter(|handle| !handle.is_piece).map(|handle| handle.ino)
    }

    /// Bytes granted through all handles.
    pub fn granted(&self) -> u64 {
        let handles = self.sessions.values().flat_map(BTreeMap::values);
        handles.map(|handle| handle.grant).sum()
    }

    /// Check that the counts are right, for debug builds.
    pub fn check(&self) {
        assert_eq!(self.count, self.sessions.values().map(BTreeMap::len).sum::<usize>());
        let (mut open, mut writers, mut all_writers) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for handle in self.sessions.values().flat_map(BTreeMap::values) {
            *open.entry(handle.ino).or_default() += 1;
            if handle.is_counted_writer {
                *writers.entry(handle.ino).or_default() += 1;
            }
            if handle.is_writer() {
                *all_writers.entry(handle.ino).or_default() += 1;
            }
        }
        assert_eq!(self.open, open, "handles of each inode");
        assert_eq!(self.writers, writers, "write handles of each striped file");
        assert_eq!(self.open_for_writing, all_writers, "write handles of each file");
        for (ino, (session, id)) in &self.appenders {
            let handle = self.get(*session, *id);
            assert!(handle.is_ok_and(|handle| handle.ino == *ino));
        }
    }
}

fn decrement(counts: &mut BTreeMap<Ino, u32>, ino: Ino) {
    let count = counts.get_mut(&ino);
    let count = count.unwrap_or_else(|| unreachable!("inode {ino} is counted"));
    assert!(*count > 0, "a count in use is positive");
    *count -= 1;
    if *count == 0 {
        counts.remove(&ino);
    }
}
