//! Transports between Forebay's processes.
//!
//! A message becomes a frame with a checksum ([`frame`]), its data follow in chunks with checksums
//! ([`chunk`]), and both travel over a Unix or TCP socket ([`stream`]). [`connection`] is a client's
//! end of a connection, [`listener`] a daemon's address. On a Unix socket the kernel identifies the
//! peer and a reply may carry a file descriptor; on TCP both sides authenticate ([`handshake`]) by
//! the pool's key ([`auth`]) or by MUNGE ([`munge`]). [`job_socket`] carries `libdatawarp`'s calls.
#![warn(missing_docs)]

pub mod auth;
pub mod chunk;
pub mod connection;
pub mod frame;
pub mod handshake;
pub mod job_socket;
pub mod listener;
pub mod munge;
pub mod stream;
