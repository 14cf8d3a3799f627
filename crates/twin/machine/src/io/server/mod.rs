//! Burst-buffer nodes.

mod node;
mod request;
mod servers;

pub(crate) use servers::Servers;
