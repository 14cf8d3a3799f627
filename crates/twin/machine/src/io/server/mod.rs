//! Burst-buffer nodes.

mod flusher;
mod layout;
mod node;
mod page_cache;
mod request;
mod servers;

pub(crate) use servers::Servers;
