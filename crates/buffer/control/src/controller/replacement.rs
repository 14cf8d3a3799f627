//! The replacement of an instance that moves: its allocation, and the stage that copies the data.

use forebay_job_script::{BufferPath, Direction, InstanceRef, Stage, StageKind, StagePath};
use forebay_policy::allocate::{self, AllocationRequest, Share, Size};
use forebay_policy::pool::{self, NodeId};

use super::evacuation_table::Evacuation;
use super::instances::full;
use super::machine::Controller;
use super::objects::{Instance, StageRecord};
use crate::messages::{CopySource, InstanceId, StageId};

impl Controller {
    /// Fragments for a copy of an instance, on other nodes than the drained ones. The error says what
    /// is missing.
    pub(super) fn replacement_shares(&self, source: InstanceId) -> Result<Vec<Share>, String> {
        let storage = &self.state.storage;
        let gone = || "it does not exist any more".to_owned();
        let row = storage.instance(source).ok_or_else(gone)?;
        let of = storage.pool(Some(&row.pool)).map_err(|failure| failure.reason)?;
        let session = self.state.sessions.get(row.session).ok_or_else(gone)?;
        let granules = storage.fragments_of(source).map(|(_, fragment)| fragment.granules);
        let request = AllocationRequest {
            size: Size::Granules(granules.fold(0, u64::saturating_add)),
            preference: session.setup.instance.as_ref().map(|s| s.preference).unwrap_or_default(),
            equalize: of.equalize_fragments,
            max_nodes: Some(self.settings.max_nodes),
        };
        let copies = |node| self.contacts.copies_instances(node);
        let nodes = self.candidate_nodes(&of.name, copies);
        allocate::allocate(&nodes, &request).map_err(|refusal| {
            let is_old = |node: &NodeId| self.is_node_online(*node) && !copies(*node);
            let of_pool = storage.nodes().filter(|(_, n)| n.pool == of.name && !n.drained);
            let old: Vec<&str> =
                of_pool.filter(|(id, _)| is_old(id)).map(|(_, n)| n.name.as_str()).collect();
            let reason = full(of, refusal).reason;
            match old.is_empty() {
                true => format!("space on other nodes: {reason}"),
                false => format!(
                    "space on other nodes: {reason}; the storage daemons of {} are of an older \
                     release, which cannot copy instances",
                    old.join(", ")
                ),
            }
        })
    }

    /// Allocates a replacement. From now on the instance is held.
    pub(super) fn begin_evacuation(&mut self, source: InstanceId, shares: &[Share]) {
        let Some(old) = self.state.storage.instance(source).cloned() else {
            return;
        };
        let replacement = InstanceId(self.state.next_id());
        let capacity = self.state.storage.pool(Some(&old.pool)).ok().and_then(|pool| {
            let granules = shares.iter().fold(0, |sum: u64, s| sum.saturating_add(s.granules));
            pool::bytes_in(granules, pool.granularity)
        });
        let (session, label) = (old.session, old.label.clone());
        let row = Instance {
            capacity: capacity.unwrap_or(old.capacity),
            created: self.date(),
            fragments: Vec::new(),
            configurations: Vec::new(),
            replaces: Some(source),
            ..old
        };
        self.state.storage.add_instance(replacement, row);
        self.add_fragments(replacement, shares);
        let stage = StageId(self.state.next_id());
        let description = description(source, label);
        let record = StageRecord::waiting(session, replacement, description, self.now);
        let record = StageRecord { copy_of: Some(source), ..record };
        self.state.stages.insert(stage, record);
        let evacuation = Evacuation { replacement, stage, failures: 0, retry_at: None };
        self.state.evacuations.begin(source, evacuation);
        self.fence_all_hosts(source);
        self.looks_at_all = true;
        let targets = self.node_names(shares.iter().map(|share| share.node));
        let outcome = format!("begun: to {targets}");
        self.note_evacuation(source, outcome);
    }

    /// The source of a copy, for its mover.
    pub(super) fn copy_source(&self, source: InstanceId) -> CopySource {
        CopySource { instance: source, addresses: self.storage_addresses(source, |_| true) }
    }
}

/// The directive of a copy. It is a description only, which storage nodes of older releases fail to
/// carry out.
fn description(source: InstanceId, label: String) -> Stage {
    let instance = InstanceRef::Persistent(label);
    Stage {
        direction: Direction::In,
        kind: StageKind::Directory,
        source: StagePath::Pfs(format!("(instance {})", source.0)),
        destination: StagePath::Buffer(BufferPath { instance, path: String::new() }),
        line: 0,
    }
}
