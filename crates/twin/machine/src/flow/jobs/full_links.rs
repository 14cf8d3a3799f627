//! Links between groups that are nearly full while a phase of one of several jobs is under way.

use crate::flow::fabric::{Fabric, Resource};
use crate::io::{IoJob, PS_PER_SECOND};
use crate::results::ResourceUse;
use forebay_flow::LinkId;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Bytes on the links between groups when the transfers of a phase begin.
pub(super) struct InitialLinkBytes {
    /// Simulated time, ps.
    since: u64,
    carried: FxHashMap<LinkId, f64>,
}

impl InitialLinkBytes {
    /// At the begin of a phase whose first transfer begins at the time `first`, ps.
    pub fn of(fabric: &Fabric, first: u64) -> InitialLinkBytes {
        let transport = &fabric.links.transport;
        let direct = fabric.network.direct.values();
        InitialLinkBytes {
            since: transport.now() + first.saturating_sub(fabric.now()),
            carried: direct.map(|direct| (direct.link, transport.carried(direct.link))).collect(),
        }
    }

    /// The use of the links from the groups in which the data of a job's accesses begin to those where they end, by all
    /// jobs, in the simulated time since then; `None` if there are none.
    pub fn use_since(&self, fabric: &Fabric, job: &IoJob, access: Access) -> Option<ResourceUse> {
        let group = |node: u32| job.topology.location(node).group;
        let clients: BTreeSet<u16> = job.nodes.iter().map(|node| group(*node)).collect();
        let servers: BTreeSet<u16> =
            job.storage.servers().iter().map(|server| group(server.node)).collect();
        let (sources, sinks) = match access {
            Access::Write => (&clients, &servers),
            Access::Read => (&servers, &clients),
        };
        let transport = &fabric.links.transport;
        let seconds = transport.now().saturating_sub(self.since) as f64 / PS_PER_SECOND as f64;
        let on_way = fabric.network.direct.iter();
        let on_way =
            on_way.filter(|((from, to, ..), _)| sources.contains(from) && sinks.contains(to));
        let mut uses: Vec<(f64, LinkId)> = on_way
            .map(|(_, direct)| {
                let before = self.carried.get(&direct.link).copied().unwrap_or(0.0);
                let most = transport.solver().capacity(direct.link) * seconds;
                let used = (transport.carried(direct.link) - before) / most.max(1.0);
                (used.min(1.0), direct.link)
            })
            .collect();
        uses.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let (peak, busiest) = *uses.first()?;
        Some(ResourceUse {
            resource: Resource::GlobalLink.name().into(),
            busiest: fabric.links.units[busiest.index()].name.clone(),
            peak_utilisation: peak,
            mean_utilisation: uses.iter().map(|(used, _)| used).sum::<f64>() / uses.len() as f64,
            time_share: 0.0,
        })
    }
}
