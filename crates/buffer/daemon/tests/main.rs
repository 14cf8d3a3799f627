//! Daemons of a pool, as a whole.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod broken_rules;
mod connection_limits;
mod daemons;
mod evacuation;
mod exposition;
mod full_disk;
mod shared_stages;
mod test_pool;
mod wire_security;
