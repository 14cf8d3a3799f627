//! No directory may move below itself: the path above its new place is walked, node by node, while no
//! other directory moves.

use super::coordinator::Phase;
use crate::context::Context;
use crate::namespace::TxLock;
use crate::objects::Objects;
use crate::volume::Volume;
use forebay_protocol::peer::{PeerPayload, TxId};
use forebay_protocol::{Errno, Ino, NodeIndex};

impl<O: Objects> Volume<O> {
    /// Walk up to the root, which succeeds, or to the forbidden directory, which fails, or until
    /// another node has to be queried.
    pub fn walk(&mut self, node: &mut Context<O>, tx: TxId) {
        loop {
            let Some(live) = self.coordinator.get_mut(tx) else {
                return;
            };
            let Phase::Walking(walk) = &mut live.phase else {
                return;
            };
            if walk.at == walk.forbidden {
                return self.fail(node, tx, Errno::EINVAL);
            }
            if walk.at == Ino::ROOT {
                let Some((at, forbidden)) = walk.rest.pop() else {
                    return self.advance(node, tx);
                };
                (walk.at, walk.forbidden) = (at, forbidden);
                continue;
            }
            let at = walk.at;
            match self.parent_of(node, tx, at) {
                None => return,
                Some(Ok(parent)) => self.step_walk(tx, parent),
                Some(Err(errno)) => return self.fail(node, tx, errno),
            }
        }
    }

    fn step_walk(&mut self, tx: TxId, parent: Ino) {
        if let Some(live) = self.coordinator.get_mut(tx)
            && let Phase::Walking(walk) = &mut live.phase
        {
            walk.at = parent;
        }
    }

    /// The parent of a directory. `None`: another node was queried, or the parent is about to change.
    fn parent_of(
        &mut self,
        node: &mut Context<O>,
        tx: TxId,
        dir: Ino,
    ) -> Option<Result<Ino, Errno>> {
        if !self.names().owns(dir) {
            self.send(node, dir.metadata_node(), PeerPayload::QueryParent { tx, dir });
            return None;
        }
        if self.tx_locks.conflicts(&TxLock::Inode(dir), tx) {
            return None;
        }
        let directory = self.names().get(dir).and_then(|inode| inode.dir());
        Some(directory.map(|directory| directory.parent).ok_or(Errno::ENOENT))
    }

    /// Another node queries the parent of a directory. While the directory moves, there is no answer,
    /// and the query is repeated.
    pub fn report_parent(&mut self, node: &mut Context<O>, from: NodeIndex, tx: TxId, dir: Ino) {
        if self.names().owns(dir)
            && let Some(parent) = self.parent_of(node, tx, dir)
        {
            self.send(node, from, PeerPayload::ParentReply { tx, dir, parent });
        }
    }

    /// Another node has reported the parent of a directory.
    pub fn parent_reported(
        &mut self,
        node: &mut Context<O>,
        tx: TxId,
        dir: Ino,
        parent: Result<Ino, Errno>,
    ) {
        let phase = self.coordinator.get(tx).map(|live| &live.phase);
        if !matches!(phase, Some(Phase::Walking(walk)) if walk.at == dir) {
            return;
        }
        match parent {
            Ok(parent) => {
                self.step_walk(tx, parent);
                self.walk(node, tx);
            }
            Err(errno) => self.fail(node, tx, errno),
        }
    }

    /// Continue walks that may have waited for something that was unlocked here.
    pub fn continue_walks(&mut self, node: &mut Context<O>) {
        for tx in self.coordinator.walking() {
            self.walk(node, tx);
        }
    }
}
