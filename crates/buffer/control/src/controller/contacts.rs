//! Contact with the peers: when each last reported, and the bytes written to its flash.

use std::collections::{BTreeMap, BTreeSet};

use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

use crate::messages::{FragmentId, Peer, UnixMillis};

/// Contact with one peer since the controller started.
#[derive(Clone, Debug, Default)]
struct PeerContact {
    last_report_at: UnixMillis,
    /// The highest sequence number of its reports.
    last_sequence: u64,
}

/// Abilities of the movers of a storage node, which those of older releases lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct MoverAbilities {
    /// They copy whole instances.
    pub copies_instances: bool,
    /// They share stages with those of other nodes.
    pub shares_stages: bool,
}

/// Contact with all peers. Not durable: a restarted controller gives every peer time to report.
#[derive(Clone, Debug, Default)]
pub(super) struct Contacts {
    started_at: Option<UnixMillis>,
    peers: BTreeMap<Peer, PeerContact>,
    written: BTreeMap<NodeId, Bytes>,
    /// Abilities that storage nodes have announced.
    abilities: BTreeMap<NodeId, MoverAbilities>,
    /// Nodes whose last report was about another disk than theirs.
    wrong_disks: BTreeSet<NodeId>,
    /// Fragments that nodes have and only a lost state of the controller knew.
    unknown: BTreeMap<NodeId, Vec<FragmentId>>,
}

impl Contacts {
    /// Notes the time of the controller's first step.
    pub fn start(&mut self, now: UnixMillis) {
        self.started_at.get_or_insert(now);
    }

    /// Notes a report. Returns whether it is newer than all others of its sender.
    pub fn record_report(&mut self, peer: Peer, sequence: u64, now: UnixMillis) -> bool {
        let contact = self.peers.entry(peer).or_default();
        contact.last_report_at = now;
        let newest = sequence > contact.last_sequence;
        contact.last_sequence = contact.last_sequence.max(sequence);
        newest
    }

    /// A peer has sent a report with this sequence number at some time.
    pub fn raise_sequence(&mut self, peer: &Peer, sequence: u64) {
        if let Some(contact) = self.peers.get_mut(peer) {
            contact.last_sequence = contact.last_sequence.max(sequence);
        }
    }

    /// Notes a report about another disk than the node's.
    pub fn record_wrong_disk(&mut self, node: NodeId) {
        self.wrong_disks.insert(node);
    }

    /// Notes a report about the node's own disk.
    pub fn record_right_disk(&mut self, node: NodeId) {
        self.wrong_disks.remove(&node);
    }

    /// Whether a node's last report was about another disk than its own.
    pub fn has_wrong_disk(&self, node: NodeId) -> bool {
        self.wrong_disks.contains(&node)
    }

    /// A node has another disk: sequence numbers begin anew.
    pub fn forget_sequence(&mut self, peer: &Peer) {
        if let Some(contact) = self.peers.get_mut(peer) {
            contact.last_sequence = 0;
        }
    }

    /// Notes the fragments of a node that only a lost state of the controller knew.
    pub fn record_unknown(&mut self, node: NodeId, fragments: Vec<FragmentId>) {
        match fragments.is_empty() {
            true => self.unknown.remove(&node),
            false => self.unknown.insert(node, fragments),
        };
    }

    /// The fragments of a node that only a lost state of the controller knew.
    pub fn unknown(&self, node: NodeId) -> &[FragmentId] {
        self.unknown.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Whether a peer has reported since the controller started.
    pub fn has_reported(&self, peer: &Peer) -> bool {
        self.peers.contains_key(peer)
    }

    /// The highest sequence number of a peer's reports; 0 if it has not reported.
    pub fn last_sequence(&self, peer: &Peer) -> u64 {
        let contact = self.peers.get(peer);
        contact.map_or(0, |contact| contact.last_sequence)
    }

    /// Milliseconds since a peer last reported, or since the controller started.
    pub fn silence_ms(&self, peer: &Peer, now: UnixMillis) -> u64 {
        let contact = self.peers.get(peer);
        let last = contact.map(|contact| contact.last_report_at);
        now.ms_since(last.max(self.started_at).unwrap_or_default())
    }

    /// Notes what the movers of a storage node can do.
    pub fn record_abilities(&mut self, node: NodeId, abilities: MoverAbilities) {
        self.abilities.insert(node, abilities);
    }

    /// Whether a storage node has reported that its movers copy instances.
    pub fn copies_instances(&self, node: NodeId) -> bool {
        self.abilities.get(&node).is_some_and(|abilities| abilities.copies_instances)
    }

    /// Whether a storage node has reported that it shares stages with others.
    pub fn shares_stages(&self, node: NodeId) -> bool {
        self.abilities.get(&node).is_some_and(|abilities| abilities.shares_stages)
    }

    /// Notes how much was written to a storage node's flash.
    pub fn record_written(&mut self, node: NodeId, written: Bytes) {
        self.written.insert(node, written);
    }

    /// Bytes written to a storage node's flash, as far as it has reported.
    pub fn written(&self, node: NodeId) -> Bytes {
        self.written.get(&node).copied().unwrap_or_default()
    }
}
