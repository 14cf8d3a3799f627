//! Framing, handshake and admission of the controller's connections.

pub(crate) mod doors;
pub(crate) mod frame;
pub(crate) mod greet;
mod seal;
pub(crate) mod server;
