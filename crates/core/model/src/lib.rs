//! Units and the description of a machine.
//!
//! Text (a TOML file in `machines/`) becomes a [`machine::Machine`]: groups, routers, links,
//! nodes and their storage, every number typed and carrying its source.
#![warn(missing_docs)]

pub mod jobscript;
pub mod machine;
pub mod units;
