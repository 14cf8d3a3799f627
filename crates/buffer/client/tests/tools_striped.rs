//! Unmodified programs on a mounted instance on three storage nodes.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use crate::programs;
use crate::support;

on_nodes!(3);
