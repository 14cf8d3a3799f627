//! The links of a system of flows, with their names.

use super::fabric::Resource;
use forebay_flow::{LinkId, Transport};

/// The kind of resource of a link, and the group, pair of groups, node or server it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub resource: Resource,
    pub name: String,
}

/// Links with their flows.
#[derive(Debug)]
pub(super) struct Links {
    pub transport: Transport,
    /// By the number of the link.
    pub units: Vec<Unit>,
}

impl Links {
    /// No links and no flows, at time 0.
    pub fn new() -> Links {
        Links { transport: Transport::new(1), units: Vec::new() }
    }

    /// Adds a link; its rate is in bytes per second.
    pub fn add(&mut self, resource: Resource, name: String, rate: f64) -> LinkId {
        self.units.push(Unit { resource, name });
        self.transport.add_link(rate)
    }
}
