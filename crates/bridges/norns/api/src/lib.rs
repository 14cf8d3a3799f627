//! The interface of NORNS, a service that transfers data between storage layers of a cluster on
//! behalf of jobs (Miranda et al., CLUSTER 2019): result codes, messages, the configuration file
//! that service and libraries share, and the calls behind `libnorns` and `libnornsctl`.
#![warn(missing_docs)]

pub mod c;
pub mod client;
pub mod code;
pub mod configuration;
pub mod message;
mod yaml;

pub use code::Code;
pub use configuration::{Configuration, ConfigurationError};
