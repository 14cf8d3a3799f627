//! Unmodified programs on a mounted instance on three storage nodes.

crate::on_nodes!(3);
