//! Published measurements and what the simulator says, side by side.

pub mod cases;
pub mod published;
pub mod verdict;
