//! Transports between Forebay's processes.
//!
//! A message becomes a frame ([`frame`]), and data follow it in chunks ([`chunk`]); [`channel`] sends
//! and receives both over a Unix or TCP socket ([`stream`]). On a Unix socket the kernel identifies
//! the peer and a reply may carry a file descriptor. On TCP both sides authenticate ([`handshake`])
//! by the pool's key ([`auth`]) or by MUNGE ([`munge`]), and everything but bulk data is encrypted
//! ([`record`]). [`connection`] is a client's end of a connection to a storage daemon, [`listener`] a
//! daemon's sockets, [`admission`] the limits on its connections. [`job_socket`] carries
//! `libdatawarp`'s calls.
#![warn(missing_docs)]

pub mod admission;
pub mod auth;
pub mod channel;
pub mod chunk;
pub mod connection;
pub mod frame;
pub mod handshake;
pub mod job_socket;
pub mod listener;
pub mod munge;
pub mod record;
pub mod stream;
