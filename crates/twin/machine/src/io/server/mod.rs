//! The servers: burst-buffer nodes, or those of the parallel file system.

mod flusher;
mod layout;
mod node;
mod page_cache;
mod paths;
mod rates;
mod request;
mod servers;

pub(crate) use layout::object_of;
pub(crate) use rates::ServerRates;
pub(crate) use servers::Servers;
