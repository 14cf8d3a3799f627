//! Handles of data objects, as the metadata nodes of their files confirm them.
//!
//! A client shows a capability to open a data object on a node that does not have the file's metadata. It
//! opens the object at once, and asks the metadata node soon after, and regularly as long as the object is
//! open, whether the handle for which the capability was issued is still open. If it is not, because it was
//! closed or its session has ended, the object's handle is closed, and the capability is refused from then on.

use super::handles::Handle;
use forebay_protocol::{HandleId, NodeIndex, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Interval at which an open handle is confirmed.
const CONFIRM_INTERVAL_NS: u64 = 10_000_000_000;
/// Time after which an unanswered question is repeated.
const REPEAT_NS: u64 = 2_000_000_000;
/// Handles in one message.
pub const MAX_BATCH: usize = 4096;
/// Refused capabilities that are remembered. Beyond that, an old one opens its object again for some
/// seconds.
const MAX_REFUSED: usize = 65_536;

/// A handle at a metadata node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetadataNodeHandle {
    /// The metadata node.
    pub node: NodeIndex,
    pub session: SessionId,
    pub handle: HandleId,
}

/// A handle on this node.
type Local = (SessionId, HandleId);

#[derive(Debug)]
struct Confirmation {
    home: MetadataNodeHandle,
    due_ns: u64,
}

/// The handles of data objects whose files have their metadata elsewhere.
#[derive(Debug, Default)]
pub struct Confirmations {
    handles: BTreeMap<Local, Confirmation>,
    /// Handles here, by the handle that each depends on.
    by_home: BTreeMap<MetadataNodeHandle, BTreeSet<Local>>,
    /// The same by the time of the next question.
    due: BTreeSet<(u64, SessionId, HandleId)>,
    refused: BTreeSet<MetadataNodeHandle>,
}

impl Confirmations {
    /// Whether there is nothing to confirm.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// The number of handles.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// A handle was opened. It is confirmed soon.
    pub fn insert(&mut self, local: Local, home: MetadataNodeHandle, now_ns: u64) {
        let replaced = self.handles.insert(local, Confirmation { home, due_ns: now_ns });
        assert!(replaced.is_none(), "a handle is opened once");
        self.by_home.entry(home).or_default().insert(local);
        self.due.insert((now_ns, local.0, local.1));
        assert_eq!(self.handles.len(), self.due.len());
    }

    /// A handle is closed.
    pub fn remove(&mut self, local: Local, closed: &Handle) {
        let Some(Confirmation { home, due_ns }) = self.handles.remove(&local) else {
            return;
        };
        assert!(closed.is_piece, "only handles of data objects are confirmed");
        self.due.remove(&(due_ns, local.0, local.1));
        if let Some(locals) = self.by_home.get_mut(&home) {
            locals.remove(&local);
            if locals.is_empty() {
                self.by_home.remove(&home);
            }
        }
        assert_eq!(self.handles.len(), self.due.len());
    }

    fn set_due(&mut self, local: Local, due_ns: u64) {
        if let Some(confirmation) = self.handles.get_mut(&local) {
            self.due.remove(&(confirmation.due_ns, local.0, local.1));
            confirmation.due_ns = due_ns;
            self.due.insert((due_ns, local.0, local.1));
        }
    }

    /// The handles to ask for now, by metadata node: at most [`MAX_BATCH`] of each. They are asked for
    /// again if there is no reply.
    pub fn take_due(&mut self, now_ns: u64) -> BTreeMap<NodeIndex, Vec<(SessionId, HandleId)>> {
        let mut questions: BTreeMap<NodeIndex, BTreeSet<_>> = BTreeMap::new();
        let due: Vec<Local> = self
            .due
            .range(..=(now_ns, SessionId(u64::MAX), HandleId(u64::MAX)))
            .map(|(_, session, handle)| (*session, *handle))
            .collect();
        for local in due {
            let Some(home) = self.handles.get(&local).map(|known| known.home) else {
                continue;
            };
            let batch = questions.entry(home.node).or_default();
            if batch.len() < MAX_BATCH {
                batch.insert((home.session, home.handle));
                self.set_due(local, now_ns.saturating_add(REPEAT_NS));
            }
        }
        questions.into_iter().map(|(node, batch)| (node, batch.into_iter().collect())).collect()
    }

    /// A metadata node has confirmed a handle.
    pub fn confirm(&mut self, home: MetadataNodeHandle, now_ns: u64) {
        for local in self.by_home.get(&home).cloned().unwrap_or_default() {
            self.set_due(local, now_ns.saturating_add(CONFIRM_INTERVAL_NS));
        }
    }

    /// A metadata node has closed a handle: returns those here that depend on it.
    pub fn refuse(&mut self, home: MetadataNodeHandle) -> Vec<Local> {
        self.refused.insert(home);
        if self.refused.len() > MAX_REFUSED {
            self.refused.pop_first();
        }
        self.by_home.get(&home).into_iter().flatten().copied().collect()
    }

    /// Whether a capability of this handle is refused.
    pub fn is_refused(&self, home: MetadataNodeHandle) -> bool {
        self.refused.contains(&home)
    }

    /// A metadata node has started again: its earlier capabilities are refused by their epoch.
    pub fn node_restarted(&mut self, node: NodeIndex) {
        self.refused.retain(|home| home.node != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::Ino;
    use forebay_protocol::message::OpenMode;

    const SECOND: u64 = 1_000_000_000;

    fn home(handle: u64) -> MetadataNodeHandle {
        MetadataNodeHandle { node: NodeIndex(1), session: SessionId(5), handle: HandleId(handle) }
    }

    fn local(handle: u64) -> Local {
        (SessionId(9), HandleId(handle))
    }

    /// The handles to ask node 1 for.
    fn due(known: &mut Confirmations, now_ns: u64) -> Vec<u64> {
        let mut questions = known.take_due(now_ns);
        let batch = questions.remove(&NodeIndex(1)).unwrap_or_default();
        assert!(questions.is_empty());
        batch.into_iter().map(|(_, handle)| handle.0).collect()
    }

    #[test]
    fn open_handles_are_confirmed_again_and_again_and_unanswered_questions_repeated() {
        let mut known = Confirmations::default();
        known.insert(local(1), home(1), 0);
        known.insert(local(2), home(2), SECOND);
        assert_eq!(due(&mut known, 0), [1]);
        assert_eq!(due(&mut known, SECOND), [2], "one question at a time");
        known.confirm(home(1), SECOND);
        assert_eq!(due(&mut known, 3 * SECOND), [2], "no reply");
        known.confirm(home(2), 3 * SECOND);
        assert_eq!(due(&mut known, 10 * SECOND), [0; 0]);
        assert_eq!(due(&mut known, 11 * SECOND), [1]);
        let closed = Handle::of_piece(Ino(3), OpenMode::default());
        known.remove(local(1), &closed);
        known.remove(local(2), &closed);
        assert!(known.is_empty() && known.by_home.is_empty() && known.due.is_empty());
    }

    #[test]
    fn closed_handle_ends_all_that_depend_on_it_and_its_capability() {
        let mut known = Confirmations::default();
        known.insert(local(1), home(1), 0);
        known.insert(local(2), home(1), 0);
        known.insert(local(3), home(3), 0);
        assert_eq!(due(&mut known, 0), [1, 3], "one question for both");
        assert_eq!(known.refuse(home(1)), [local(1), local(2)]);
        assert!(known.is_refused(home(1)) && !known.is_refused(home(3)));
        known.node_restarted(NodeIndex(2));
        assert!(known.is_refused(home(1)));
        known.node_restarted(NodeIndex(1));
        assert!(!known.is_refused(home(1)));
    }
}
