//! The interconnect: dragonfly topology, routing, and a packet fabric.
//!
//! A [`forebay_machine_file::machine::Network`] becomes a [`Topology`] (routers, links, nodes), and each
//! of its groups a [`Fabric`] that carries packets from network interface to network interface
//! over links with finite buffers.
#![warn(missing_docs)]

mod credits;
mod event;
mod fabric;
mod nic;
mod packet;
mod packet_table;
mod port;
mod port_table;
mod probe;
mod routing;
mod statistics;
mod topology;

pub use event::{NetEvent, NetMessage};
pub use fabric::{Delivery, Fabric, lookahead};
pub use nic::{Message, MessageClass};
pub use packet::{Packet, Route};
pub use packet_table::PacketId;
pub use probe::{
    JOBS, JobTimeline, JobsOfNodes, JobsOfPackets, LinkBins, LinkSeries, Passage, Probe,
    ProbeOptions, SampleBuffer, Sampler, WaitMatrix,
};
pub use statistics::{DeliveryStatistics, LinkStatistics, Timeline};
pub use topology::{GlobalLink, NodeLocation, Topology};
