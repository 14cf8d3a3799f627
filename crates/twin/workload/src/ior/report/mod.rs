//! Results in the format of IOR 4.1: options, one line per phase, best rates, summary. Lines for
//! the removal of files, and the state at a deadline with wear-out, are omitted.
//!
//! Rates are in MiB/s (2^20 bytes) unless the text says MB (10^6). Lines and columns are IOR's, so
//! that scripts that parse its output can parse this one; the first line marks it as a simulation,
//! and times of day are simulated seconds since the start of the run, so that the text is
//! reproducible.

mod format;
mod result;
mod summary;
mod text;

pub use result::{PhaseResult, Report};
