//! Simulated time.

/// Simulated time in picoseconds since the simulation's start. 2^64 ps are 213 days.
pub type Picoseconds = u64;
