//! Fences on a storage node: mounts of compute nodes that it refuses.

use std::collections::BTreeMap;

use super::fragments::{LocalFragmentState, fragments_in};
use super::{StorageEffect, StorageNode};
use crate::messages::{FragmentId, HostFence, InstanceId};
use crate::records::{CorruptRecord, StoredRecord, Table};

impl StorageNode {
    /// The fences in durable records, by instance: a storage daemon needs them when it starts.
    pub fn fences_in(
        records: &[StoredRecord],
    ) -> Result<Vec<(InstanceId, Vec<HostFence>)>, CorruptRecord> {
        let fragments = fragments_in(records)?;
        let mut fences: Table<FragmentId, BTreeMap<String, u64>> = Table::new("node.fences");
        for record in records {
            fences.restore(record)?;
        }
        let of_instance = |(id, hosts): (FragmentId, &BTreeMap<String, u64>)| {
            let instance = fragments.get(id)?.plan.instance;
            let fence = |(host, first): (&String, &u64)| HostFence {
                host: host.clone(),
                generation: *first,
            };
            Some((instance, hosts.iter().map(fence).collect()))
        };
        Ok(fences.iter().filter_map(of_instance).collect())
    }

    /// Fences are durable before they hold, so that they hold again from the next start on.
    pub(super) fn fence_hosts(&mut self, id: FragmentId, hosts: Vec<HostFence>, through: u64) {
        let row = self.fragments.get(id);
        let Some(row) = row.filter(|row| row.state == LocalFragmentState::Ready) else {
            return;
        };
        let plan = row.plan.clone();
        let known = self.fences.get(id).cloned().unwrap_or_default();
        let mut fences = known.clone();
        for HostFence { host, generation } in &hosts {
            let first = fences.entry(host.clone()).or_default();
            *first = (*first).max(*generation);
        }
        if fences != known {
            self.fences.insert(id, fences);
        }
        self.effects.push(StorageEffect::FenceHosts(plan, hosts, through));
    }
}
