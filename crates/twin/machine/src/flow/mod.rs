//! IOR on burst buffers as flows: the same job, storage parameters and network as at packet level, with
//! rates instead of packets.
//!
//! # The model
//!
//! The transfers of a process are *runs*: transfers one after another to the same servers and the same
//! object of a file ([`runs`]). A run is a flow that carries its bytes. Its rate is max-min fair over the
//! resources that it crosses ([`fabric`], [`phase_links`], [`servers`]): the client of the node, the node's
//! link, the links of the two groups and between them, the server's link, dispatch, threads, data path and
//! flash, and for writes to shared files the lock of the object ([`objects`], [`extent_waits`]). A process has one call at a time, so no rate is
//! larger than a transfer divided by the duration of a *lone call*, which one process on the packet
//! fabric determines ([`calls`]): this keeps the effects of the transfer size.
//!
//! Calls pass clients, links and servers one after another: those of phases with few requests, and the first ones of
//! others, are simulated request by request ([`requests`]).
//! Processes that meet at a controller of the flash while another is idle wait for each other
//! ([`flash_queue`]).
//!
//! Processes enter their next runs as their runs end ([`transfers`]), so that collisions of processes at
//! servers, the convoys of processes in lockstep and the tail of the last ones result. A phase with more
//! than 8,192 runs, and more than three of each process, is a steady state for nearly all of its time: so
//! many runs from its middle on are simulated, and the second half of them gives the rate of the whole
//! phase; where the first round of the files is in another order than the others, each has such a window.
//! The cost therefore does not depend on the number of bytes. Several jobs at once share one system of
//! flows, and their steady times are skipped ([`jobs`]).

mod begun_phase;
mod bursts;
mod calls;
mod document;
mod extent_waits;
mod fabric;
mod fetches;
mod flash_queue;
mod jobs;
mod links;
mod network_links;
mod objects;
mod page_cache;
mod parts;
mod phase;
mod phase_links;
mod refusals;
mod requests;
mod runs;
mod servers;
mod steady;
mod traffic;
mod transfers;

pub(crate) use bursts::{burst_of, few_wide_calls};
pub(crate) use calls::LoneCalls;
pub(crate) use jobs::{FlowJob, FlowPhase, FlowTraffic, JobAlone, simulate_jobs};
pub(crate) use phase::{CallsBy, FlowOutcome, calls_of_nodes, simulate};
pub(crate) use refusals::{LEFT_OUT, LEFT_OUT_OF_TRAFFIC, check, check_several, check_traffic};
pub(crate) use requests::all_are_simulated;
pub(crate) use traffic::{TrafficRates, rates_of_traffic};
pub(crate) use transfers::stripes_of_window;
