//! Collective operations of MPI among the processes of a job.
//!
//! They are hierarchical, as in Cray MPI: the processes of a node gather at its *leader* in shared
//! memory, the leaders exchange messages over the network, and each leader passes the result on to
//! its node's processes. The messages are those of a [`forebay_workload::collective::Schedule`]. In
//! each round a leader spends the MPI overhead to send, its message crosses the network, and it
//! spends the overhead once more to receive, and the time to combine vectors. It begins the next
//! round when its own message has left, as far as the rate of its link permits, and the other's has
//! arrived, and a time for the round itself has passed. Short messages are sent eagerly, and copied at
//! both ends; long ones go by rendezvous.

mod members;
mod tag;
mod team;

pub(crate) use members::{Left, Members, MessageCounts};
pub(crate) use team::{Team, TeamId};
