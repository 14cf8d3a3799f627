//! Which storage node holds which bytes of a file, and which namespace shard owns a directory.
//!
//! A file is cut into stripes; stripe `s` of inode `i` lies on node `(hash(i) + s) mod n`. A node
//! keeps all its stripes of a file packed in one data object, so that on an instance of one node
//! object and file are byte for byte the same. A directory's entries live on the shard its inode
//! names; a new directory goes to the shard that the hash of parent and name chooses.

use crate::ids::{Ino, NodeIndex};

/// Unit in which promises of space are used up, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// The blocks that a write of `length` bytes at `offset` may need, in bytes.
pub fn block_bytes(offset: u64, length: u64) -> u64 {
    if length == 0 {
        return 0;
    }
    ((offset + length - 1) / BLOCK_BYTES - offset / BLOCK_BYTES + 1) * BLOCK_BYTES
}

/// How an instance spreads files over its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    nodes: u16,
    stripe: u64,
}

/// A run of bytes of a file that lies in one piece in one data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The node that holds it.
    pub node: NodeIndex,
    /// Offset in the node's data object.
    pub object_offset: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Layout {
    /// The layout of an instance on one node.
    pub const SINGLE_NODE: Layout = Layout {
        nodes: 1,
        stripe: 1 << 20,
    };

    /// A layout over `nodes` nodes with stripes of `stripe` bytes; `None` if either is 0.
    pub fn new(nodes: u16, stripe: u64) -> Option<Layout> {
        (nodes > 0 && stripe > 0).then_some(Layout { nodes, stripe })
    }

    /// The node of stripe `index` of `ino`.
    pub fn node_of_stripe(&self, ino: Ino, index: u64) -> NodeIndex {
        let nodes = u64::from(self.nodes);
        NodeIndex(((mix(ino.0) % nodes + index % nodes) % nodes) as u16)
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Bytes of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.stripe
    }

    /// How far the file `ino` goes if its data object on `node` has `length` bytes: the largest of
    /// the ends of all objects is the file's length.
    pub fn file_end(&self, ino: Ino, node: NodeIndex, length: u64) -> u64 {
        if self.nodes == 1 || length == 0 {
            return length;
        }
        let (row, within) = ((length - 1) / self.stripe, (length - 1) % self.stripe);
        let index = row
            .saturating_mul(u64::from(self.nodes))
            .saturating_add(self.first(ino, node));
        index.saturating_mul(self.stripe).saturating_add(within + 1)
    }

    /// The most that the data object on `node` of a file of `length` bytes may have; exactly that
    /// on the node of the last byte.
    pub fn object_length(&self, ino: Ino, node: NodeIndex, length: u64) -> u64 {
        if self.nodes == 1 {
            return length;
        }
        let (whole, rest) = (length / self.stripe, length % self.stripe);
        let (nodes, first) = (u64::from(self.nodes), self.first(ino, node));
        // Whole stripes with numbers first, first + nodes, ... below `whole`.
        let rows = whole.saturating_sub(first).div_ceil(nodes);
        let tail = if rest > 0 && self.node_of_stripe(ino, whole) == node {
            rest
        } else {
            0
        };
        rows * self.stripe + tail
    }

    /// The number of the first stripe on `node`.
    fn first(&self, ino: Ino, node: NodeIndex) -> u64 {
        let nodes = u64::from(self.nodes);
        (u64::from(node.0) % nodes + nodes - mix(ino.0) % nodes) % nodes
    }

    /// The shard that a new directory `name` in `parent` is put on.
    pub fn metadata_node_for_dir(&self, parent: Ino, name: &[u8]) -> NodeIndex {
        let hash = name
            .iter()
            .fold(mix(parent.0), |h, b| mix(h ^ u64::from(*b)));
        NodeIndex((hash % u64::from(self.nodes)) as u16)
    }

    /// The pieces of `[offset, offset + length)` of `ino`, in the order of their offsets.
    pub fn extents(
        &self,
        ino: Ino,
        offset: u64,
        length: u64,
    ) -> impl Iterator<Item = Extent> + use<> {
        let layout = *self;
        let end = offset.saturating_add(length);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let index = at / layout.stripe;
            let within = at % layout.stripe;
            let length = if layout.nodes == 1 {
                end - at
            } else {
                (layout.stripe - within).min(end - at)
            };
            let object_offset = index / u64::from(layout.nodes) * layout.stripe + within;
            let object_offset = if layout.nodes == 1 { at } else { object_offset };
            let piece = Extent {
                node: layout.node_of_stripe(ino, index),
                object_offset,
                offset: at,
                length,
            };
            at += length;
            Some(piece)
        })
    }
}

/// A bijective mix of 64 bits (the finalizer of SplitMix64, Steele, Lea and Flood 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn pieces_cover_the_range_once(
            nodes in 1u16..9, stripe in 1u64..100, ino: u64, offset in 0u64..5000, length in 0u64..3000,
        ) {
            let layout = Layout::new(nodes, stripe).unwrap();
            let mut at = offset;
            for piece in layout.extents(Ino(ino), offset, length) {
                prop_assert_eq!(piece.offset, at);
                prop_assert!(piece.node.0 < nodes && piece.length > 0);
                at += piece.length;
            }
            prop_assert_eq!(at, offset + length);
        }

        #[test]
        fn no_two_bytes_share_a_place(nodes in 1u16..6, stripe in 1u64..20, ino: u64) {
            let layout = Layout::new(nodes, stripe).unwrap();
            let mut seen = HashSet::new();
            for byte in 0..500 {
                let piece = layout.extents(Ino(ino), byte, 1).next().unwrap();
                prop_assert!(seen.insert((piece.node, piece.object_offset)));
            }
        }

        #[test]
        fn lengths_of_objects_and_files_agree(
            nodes in 1u16..6, stripe in 1u64..20, ino: u64, length in 0u64..500,
        ) {
            let layout = Layout::new(nodes, stripe).unwrap();
            let ino = Ino(ino);
            let mut ends = vec![0; usize::from(nodes)];
            for byte in 0..length {
                let piece = layout.extents(ino, byte, 1).next().unwrap();
                let end = &mut ends[usize::from(piece.node.0)];
                *end = (*end).max(piece.object_offset + 1);
            }
            let mut longest = 0;
            for node in (0..nodes).map(NodeIndex) {
                let object = layout.object_length(ino, node, length);
                prop_assert_eq!(object, ends[usize::from(node.0)]);
                prop_assert!(layout.file_end(ino, node, object) <= length);
                longest = longest.max(layout.file_end(ino, node, object));
            }
            prop_assert_eq!(longest, length);
        }

        #[test]
        fn on_one_node_object_and_file_are_the_same(stripe in 1u64..100, ino: u64, offset in 0u64..9999) {
            let layout = Layout::new(1, stripe).unwrap();
            let pieces: Vec<_> = layout.extents(Ino(ino), offset, 777).collect();
            prop_assert_eq!(pieces, vec![Extent { node: NodeIndex(0), object_offset: offset, offset, length: 777 }]);
        }
    }
}
