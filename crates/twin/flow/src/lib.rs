//! Flows over shared links.
//!
//! A [`Solver`] gives each flow its max-min fair rate: no flow's rate can grow without that of a flow
//! that is no faster becoming smaller (Bertsekas, Gallager, *Data Networks*, section 6.5.2). A
//! [`Transport`] lets flows carry amounts of bytes, one after another, and solves again only the part
//! that a change affects.
//!
//! A link is anything with a rate that its users share: a cable, a server, a lock. Rates are in bytes
//! per second. All sums run in the order of the numbers of flows and links, so that the same calls
//! give the same bits.
#![warn(missing_docs)]

mod affected;
mod ends;
mod solver;
mod transport;

pub use solver::{Bottleneck, FlowId, FlowSpec, LinkId, Solver};
pub use transport::Transport;
