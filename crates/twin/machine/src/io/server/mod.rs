//! The servers: burst-buffer nodes, or those of the parallel file system.

mod flusher;
mod layout;
mod locking;
mod node;
mod page_cache;
mod paths;
mod rates;
mod ready;
mod request;
mod servers;

pub(crate) use layout::{Extent, object_of};
pub(crate) use node::{Path, Server};
pub(crate) use rates::ServerRates;
pub use rates::flash_rate;
pub use ready::ServerQueues;
pub(crate) use servers::{Servers, copy_time};
