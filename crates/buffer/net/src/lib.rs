//! Transports between Forebay's processes.
//!
//! A message becomes a frame ([`frame`]), followed by data in chunks ([`chunk`]); [`channel`] sends
//! and receives both over a Unix or TCP socket ([`stream`]). On a Unix socket the kernel identifies
//! the peer, and a reply may pass a file descriptor. On TCP both sides authenticate ([`handshake`])
//! by the pool's key ([`auth`]) or by MUNGE ([`munge`]), and everything except bulk data is encrypted
//! ([`record`]). [`connection`] is a client's end of a connection to a storage daemon, [`listener`] a
//! daemon's socket, [`in_process`] replaces that within a process, [`admission`] limits connections, [`user_rates`] limits requests, and [`job_socket`]
//! carries the calls of `libdatawarp`. [`writeback`], [`extents`], [`random`], [`memory`], [`lock_file`] and [`time_slice`] are
//! services of the operating system that several crates use.
#![warn(missing_docs)]

pub mod admission;
pub mod auth;
pub mod channel;
pub mod chunk;
pub mod connection;
pub mod descriptors;
pub mod extents;
pub mod frame;
pub mod handshake;
pub mod in_process;
pub mod job_socket;
pub mod listener;
pub mod lock_file;
pub mod memory;
pub mod munge;
pub mod random;
pub mod record;
pub mod stream;
pub mod time_slice;
pub mod user_rates;
pub mod writeback;
