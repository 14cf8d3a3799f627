//! The interconnect: dragonfly topology, routing, and a packet fabric.
//!
//! A [`forebay_machine_file::machine::Network`] becomes a [`Topology`] (who is joined to whom), and each
//! of its groups a [`Fabric`] that carries packets from network interface to network interface
//! over links with finite buffers.
#![warn(missing_docs)]

mod fabric;
mod packet;
mod port;
mod routing;
mod statistics;
mod topology;

pub use fabric::{Fabric, Message, NetEvent, NetMessage, lookahead};
pub use packet::{Packet, Route};
pub use statistics::{DeliveryStatistics, LinkStatistics, Timeline};
pub use topology::{GlobalLink, LinkName, NodeLocation, Topology};
