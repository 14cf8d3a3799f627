//! Comparison of simulations with published measurements.

pub mod accuracy;
pub mod cases;
pub mod comparison;
pub mod fidelity;
pub mod kinds;
pub mod markdown;
pub mod messages;
pub mod network;
pub mod packet_results;
pub mod published;
pub mod rows_csv;
pub mod status;
pub mod verdict;
