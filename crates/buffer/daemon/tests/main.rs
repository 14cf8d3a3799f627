//! Daemons of a pool, as a whole.

mod broken_rules;
mod connection_limits;
mod daemons;
mod evacuation;
mod exposition;
mod full_disk;
mod shared_stages;
mod test_pool;
mod wire_security;
