//! Parallel discrete-event simulation: time, queue, partitions, execution.
//!
//! A model is cut into [`Partition`]s, each with an event queue and a clock of its own. They run
//! concurrently in windows no longer than the *lookahead*, the least time by which a message
//! from one partition to another lies in the future; messages are exchanged between windows.
//! Since nothing that happens within a window can reach another partition in the same window,
//! no event is ever too late (conservative synchronisation, Chandy and Misra 1979; here the
//! synchronous form, YAWNS, Nicol 1993).
//!
//! # Determinism
//!
//! Results are the same to the bit for any number of threads, because nothing depends on which
//! thread ran a partition or when:
//!
//! - events of a partition run in the order of (time, key, insertion), the key given by the
//!   model; a partition inserts its own events in the order in which it runs, and receives
//!   messages in the order of (sending partition, order of sending);
//! - a window starts at the earliest event of all partitions and ends one lookahead later.
#![warn(missing_docs)]

mod barrier;
mod cell;
mod load_sharing;
mod partition;
mod queue;
mod run;
mod simulation;
mod time;

pub use partition::{Context, Partition};
pub use queue::{Ahead, Queue, prefetch};
pub use run::Progress;
pub use simulation::{Simulation, Statistics};
pub use time::Picoseconds;
