//! Collective operations of MPI as schedules of messages.
//!
//! A [`Schedule`] is a pure function: the messages that a rank sends and receives in each round. The
//! algorithms, and the sizes at which one replaces another, are those of MPICH, from which Cray MPI
//! derives (control variables `MPIR_CVAR_*_MSG_SIZE`; Thakur, Rabenseifner, Gropp: Optimization of
//! Collective Communication Operations in MPICH, 2005). The root of rooted operations is rank 0. The
//! exchanges of point-to-point messages are schedules as well.

mod operation;
mod rounds;
mod schedule;

pub use operation::{Algorithm, CollectiveError, CollectiveSpec, Operation, STREAM_MESSAGES};
pub use schedule::{Blocks, Schedule, Step, Transfer};
