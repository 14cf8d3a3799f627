//! Unmodified programs on a mounted instance on three storage nodes.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod programs;
mod support;

on_nodes!(3);
