//! What people see: progress in the terminal, tables of where time went and of what a pool holds.

mod status;
mod tables;
mod terminal;

pub use forebay_units::human::{size, time};
pub use status::{instance_state, stage_state, status, user};
pub use tables::{files, recovered, staged, summary};
pub use terminal::Terminal;
