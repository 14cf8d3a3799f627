//! Files without names that a client with a delegation has had created and opened ahead of need. It
//! reports one of them as created, under a name, before that arrives here.
//!
//! A prepared file is one without a name (`O_TMPFILE`): it ends with its handle, unless it has got a name. So
//! what a client that is killed has prepared, or has reported and not sent, takes nothing.

use super::Volume;
use super::files::CreateFile;
use crate::context::{Context, Handled, Outcome, Requester};
use crate::log::LogSpace;
use crate::namespace::{Change, PlannedInode, SetInode};
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use forebay_protocol::message::{NewInode, OpenMode};
use forebay_protocol::{Errno, FileKind, HandleId, Ino, Reply};

/// Inodes, by the limit of the instance and by the memory of the node, and bytes of space that are free
/// when a file is prepared. So a name is not refused for lack of them, and programs are not refused what
/// is only prepared.
const MIN_FREE_INODES: u64 = 1024;
const MIN_FREE_SPACE: u64 = 32 << 20;

impl<O: Objects> Volume<O> {
    /// Create and open a file without name, owner and permissions. `ENOSPC`: the instance is short of
    /// something.
    pub fn prepare_file(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (id, open): (HandleId, OpenMode),
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let used = self.names().len() as u64;
        let inodes =
            self.free_inodes(&node.memory).min(self.state.spec.inodes.saturating_sub(used));
        let limit = self.space.limit(self.state.spec.capacity);
        let space = limit.saturating_sub(self.space.used());
        if inodes < MIN_FREE_INODES || space < MIN_FREE_SPACE {
            return Err(Errno::ENOSPC);
        }
        let (ino, new) = (self.names().next_ino(), NewInode::Node(FileKind::File, 0));
        let inode = PlannedInode { ino, new, mode: 0, uid: 0, gid: 0, opened: open.write };
        let (parent, now) = (Ino::ROOT, node.now.wall);
        let change = Change::MakeUnnamed { parent, inode, linkable: true, now };
        self.create_opened(node, &requester.origin, (ino, change), (id, open))
    }

    /// Give the prepared file that a handle has open the name under which the client has reported it, with the
    /// owner and the permissions that a file has that is created so. The client has set the times of the data
    /// object.
    pub fn name_prepared_file(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        file: &CreateFile<'_>,
    ) -> Handled<O> {
        node.require_log_space(LogSpace::ReserveOnly)?;
        let ino = self.handles.get(requester.origin.session, file.handle)?.ino;
        if !self.names().find(ino)?.is_linkable() {
            return Err(Errno::EBADF);
        }
        let (names, user) = (self.names(), &requester.user);
        let new = NewInode::Node(FileKind::File, 0);
        let (planned, acls) = names.plan_make(user, file.parent, file.name, new, file.mode)?;
        if !acls.0.is_empty() {
            return Err(Errno::EOPNOTSUPP);
        }
        let reported_at = requester.reported_at.unwrap_or(node.now.wall);
        let set = SetInode {
            mode: Some(planned.mode),
            uid: Some(planned.uid),
            gid: Some(planned.gid),
            atime: Some(reported_at),
            mtime: Some(reported_at),
            ctime: reported_at,
        };
        let (parent, name) = (file.parent, file.name.to_vec());
        let link =
            Change::Link { ino, parent, name, now: self.time_of_entry(node, requester, parent) };
        // With a name it must have them.
        self.log(node, VolumeEvent::Namespace(Change::SetAttributes { ino, set }), None);
        self.log_change(node, &requester.origin, link, SlotResult::Done);
        Ok(Outcome::Reply(Reply::Done))
    }
}
