//! Client processes: each performs the steps of the test in order, one call at a time.

mod clients;
mod exchange;
mod rank;
mod requests;

pub(crate) use clients::Clients;
