//! Machine files.
//!
//! A TOML file (see `machines/`) becomes a [`machine::Machine`]: groups, routers, links, nodes and
//! their storage. Every number has a type and a source.
#![warn(missing_docs)]

mod builtin;
pub mod describe;
mod document;
mod layers;
pub mod machine;
mod network;
mod node_map;
mod parse;
mod pfs;
mod placement;
mod problem;
mod section;
mod settings;
mod value;
mod warnings;

pub use builtin::builtin_machines;
pub use parse::MAX_ROUTERS;
pub use problem::{MachineError, Problem};
pub use settings::Setting;
