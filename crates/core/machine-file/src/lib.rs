//! Machine files.
//!
//! Text (a TOML file in `machines/`) becomes a [`machine::Machine`]: groups, routers, links,
//! nodes and their storage, every number typed and carrying its source.
#![warn(missing_docs)]

mod builtin;
mod document;
pub mod machine;
mod machine_file;
mod node_map;
mod placement;
mod problem;
mod section;
pub mod show;
mod value;

pub use builtin::builtin_machines;
pub use machine_file::{ARRANGEMENTS, MAX_ROUTERS, ROUTINGS};
pub use problem::{MachineError, Problem};
