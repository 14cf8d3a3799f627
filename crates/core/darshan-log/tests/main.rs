//! Tests of the reader.

mod damage;
mod formats;
mod pydarshan;
mod real_logs;
mod writer;
