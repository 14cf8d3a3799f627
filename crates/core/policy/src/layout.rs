//! File layout: the storage node of each stripe, and the metadata node of each directory.
//!
//! A file is cut into stripes, and stripes are distributed round-robin over the nodes of an
//! instance: each *round* puts one stripe on every node. A node keeps all its stripes of a file
//! packed in one data object, so that on an instance of one node object and file are byte for byte
//! the same. A directory's entries are on the node named by its inode; a new directory goes to the
//! node selected by the hash of parent and name.

use forebay_random::{hash, hash_number, stream_label};
use serde::{Deserialize, Serialize};

/// The number of nodes, the first ones of its rounds, that a new file may use.
pub const FIRST_WIDTH: u16 = 8;
/// The factor by which the number of nodes of a growing file grows.
const WIDTH_STEP: u16 = 8;

/// Index of a storage node among an instance's nodes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeIndex(pub u16);

/// The node of each round's first stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StripeOrder {
    /// Every round begins at the node selected by the hash of the file's number: Forebay's order.
    #[default]
    Hashed,
    /// The first round begins at node (file number mod nodes), each further one at a hashed node:
    /// the order assumed for DataWarp. Processes whose blocks in a shared file have equal distances
    /// then do not all use the same few nodes at a time.
    Rotated,
}

/// The layout of an instance's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    nodes: u16,
    stripe: u64,
    order: StripeOrder,
}

/// A contiguous range of a file that is contiguous in one data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The node of the data object.
    pub node: NodeIndex,
    /// Offset in the node's data object.
    pub object_offset: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Layout {
    /// Nodes of an instance, at most.
    pub const MAX_NODES: u16 = 1024;

    /// The layout of an instance on one node.
    pub const SINGLE_NODE: Layout =
        Layout { nodes: 1, stripe: 1 << 20, order: StripeOrder::Hashed };

    /// A layout over `nodes` nodes with stripes of `stripe` bytes in [`StripeOrder::Hashed`];
    /// `None` if either is 0.
    pub fn new(nodes: u16, stripe: u64) -> Option<Layout> {
        (nodes > 0 && stripe > 0).then_some(Layout { nodes, stripe, order: StripeOrder::Hashed })
    }

    /// The same layout with another order of stripes.
    pub fn with_order(self, order: StripeOrder) -> Layout {
        Layout { order, ..self }
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Bytes of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.stripe
    }

    /// The node of stripe `index` of a file.
    pub fn node_of_stripe(&self, file: impl Into<u64>, index: u64) -> NodeIndex {
        let nodes = u64::from(self.nodes);
        let first = self.first_node(file.into(), index / nodes);
        NodeIndex(((first + index % nodes) % nodes) as u16)
    }

    /// The node of the byte at `offset` of a file.
    pub fn node_of_offset(&self, file: impl Into<u64>, offset: u64) -> NodeIndex {
        self.node_of_stripe(file, offset / self.stripe)
    }

    /// The node of the first stripe of a round.
    fn first_node(&self, file: u64, round: u64) -> u64 {
        let nodes = u64::from(self.nodes);
        match (self.order, round) {
            (StripeOrder::Hashed, _) => hash_number(file) % nodes,
            (StripeOrder::Rotated, 0) => file % nodes,
            (StripeOrder::Rotated, round) => {
                let shift = hash(file, stream_label("rounds"), round) % nodes;
                (file % nodes + shift) % nodes
            }
        }
    }

    /// The position of a node's stripe within a round.
    fn position_in_round(&self, file: u64, node: NodeIndex, round: u64) -> u64 {
        let nodes = u64::from(self.nodes);
        (u64::from(node.0) % nodes + nodes - self.first_node(file, round)) % nodes
    }

    /// The position of a node in the rounds of a file: 0 has the first stripe. Only in
    /// [`StripeOrder::Hashed`], where it is the same in all rounds.
    pub fn position(&self, file: impl Into<u64>, node: NodeIndex) -> u16 {
        assert_eq!(self.order, StripeOrder::Hashed, "positions are the same in all rounds");
        self.position_in_round(file.into(), node, 0) as u16
    }

    /// The nodes at the first `width` positions of a file's rounds; all if `width` is larger.
    pub fn first_nodes<F: Into<u64>>(
        &self,
        file: F,
        width: u16,
    ) -> impl Iterator<Item = NodeIndex> + use<F> {
        assert_eq!(self.order, StripeOrder::Hashed, "positions are the same in all rounds");
        let nodes = u64::from(self.nodes);
        let first = self.first_node(file.into(), 0);
        (0..width.min(self.nodes))
            .map(move |position| NodeIndex(((first + u64::from(position)) % nodes) as u16))
    }

    /// The number of nodes to which a file is extended that needs the node at `position`: 8, 64, 512,
    /// or all. Small files stay on few nodes, and a growing one asks for more only a few times.
    pub fn width_for(&self, position: u16) -> u16 {
        let widths =
            std::iter::successors(Some(FIRST_WIDTH), |width| width.checked_mul(WIDTH_STEP));
        let enough = widths.into_iter().find(|width| *width > position);
        enough.unwrap_or(u16::MAX).min(self.nodes)
    }

    /// The position of the node with the last byte of a file of `length` bytes; 0 for an empty file.
    pub fn last_position(&self, length: u64) -> u16 {
        (length.saturating_sub(1) / self.stripe % u64::from(self.nodes)) as u16
    }

    /// The end in the file of a data object of `length` bytes on `node`. The largest of the ends of
    /// all objects is the file's length.
    pub fn file_end(&self, file: impl Into<u64>, node: NodeIndex, length: u64) -> u64 {
        if self.nodes == 1 || length == 0 {
            return length;
        }
        let (round, within) = ((length - 1) / self.stripe, (length - 1) % self.stripe);
        let index = round
            .saturating_mul(u64::from(self.nodes))
            .saturating_add(self.position_in_round(file.into(), node, round));
        index.saturating_mul(self.stripe).saturating_add(within + 1)
    }

    /// The largest length of the data object on `node` of a file of `length` bytes; on the node of
    /// the last byte, the exact length.
    pub fn object_length(&self, file: impl Into<u64>, node: NodeIndex, length: u64) -> u64 {
        if self.nodes == 1 {
            return length;
        }
        let (whole, rest) = (length / self.stripe, length % self.stripe);
        // Whole stripes: one per complete round, and perhaps one of the last round.
        let nodes = u64::from(self.nodes);
        let (round, stripes) = (whole / nodes, whole % nodes);
        let position = self.position_in_round(file.into(), node, round);
        let tail = if position < stripes {
            self.stripe
        } else if position == stripes {
            rest
        } else {
            0
        };
        round * self.stripe + tail
    }

    /// The metadata node of a new directory `name` in `parent`.
    pub fn metadata_node_for_dir(&self, parent: impl Into<u64>, name: &[u8]) -> NodeIndex {
        let hash =
            name.iter().fold(hash_number(parent.into()), |h, b| hash_number(h ^ u64::from(*b)));
        NodeIndex((hash % u64::from(self.nodes)) as u16)
    }

    /// The extents of `[offset, offset + length)` of a file, in the order of their offsets.
    pub fn extents<F: Into<u64>>(
        &self,
        file: F,
        offset: u64,
        length: u64,
    ) -> impl Iterator<Item = Extent> + use<F> {
        let (layout, file) = (*self, file.into());
        let end = offset.saturating_add(length);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let extent = layout.extent_at(file, at, end);
            at += extent.length;
            Some(extent)
        })
    }

    /// The longest extent that begins at `at` and ends at `end` or before.
    fn extent_at(&self, file: u64, at: u64, end: u64) -> Extent {
        if self.nodes == 1 {
            return Extent { node: NodeIndex(0), object_offset: at, offset: at, length: end - at };
        }
        let (index, within) = (at / self.stripe, at % self.stripe);
        let round = index / u64::from(self.nodes);
        Extent {
            node: self.node_of_stripe(file, index),
            object_offset: round * self.stripe + within,
            offset: at,
            length: (self.stripe - within).min(end - at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn layouts(nodes: u16, stripe: u64) -> [Layout; 2] {
        let layout = Layout::new(nodes, stripe).unwrap();
        [layout, layout.with_order(StripeOrder::Rotated)]
    }

    proptest! {
        #[test]
        fn extents_cover_the_range_once(
            nodes in 1u16..9, stripe in 1u64..100, file: u64, offset in 0u64..5000, length in 0u64..3000,
        ) {
            for layout in layouts(nodes, stripe) {
                let mut at = offset;
                for extent in layout.extents(file, offset, length) {
                    prop_assert_eq!(extent.offset, at);
                    prop_assert_eq!(extent.node, layout.node_of_offset(file, at));
                    prop_assert!(extent.node.0 < nodes && extent.length > 0);
                    at += extent.length;
                }
                prop_assert_eq!(at, offset + length);
            }
        }

        #[test]
        fn bytes_have_distinct_places(nodes in 1u16..6, stripe in 1u64..20, file: u64) {
            for layout in layouts(nodes, stripe) {
                let mut seen = HashSet::new();
                for byte in 0..500 {
                    let extent = layout.extents(file, byte, 1).next().unwrap();
                    prop_assert!(seen.insert((extent.node, extent.object_offset)));
                }
            }
        }

        #[test]
        fn object_lengths_and_file_length_agree(
            nodes in 1u16..6, stripe in 1u64..20, file: u64, length in 0u64..500,
        ) {
            for layout in layouts(nodes, stripe) {
                let mut ends = vec![0; usize::from(nodes)];
                for byte in 0..length {
                    let extent = layout.extents(file, byte, 1).next().unwrap();
                    let end = &mut ends[usize::from(extent.node.0)];
                    *end = (*end).max(extent.object_offset + 1);
                }
                let mut longest = 0;
                for node in (0..nodes).map(NodeIndex) {
                    let object = layout.object_length(file, node, length);
                    prop_assert_eq!(object, ends[usize::from(node.0)]);
                    prop_assert!(layout.file_end(file, node, object) <= length);
                    longest = longest.max(layout.file_end(file, node, object));
                }
                prop_assert_eq!(longest, length);
            }
        }

        #[test]
        fn nodes_of_a_short_file_are_the_first_ones(
            nodes in 1u16..40, stripe in 1u64..20, file: u64, length in 1u64..3000,
        ) {
            let layout = Layout::new(nodes, stripe).unwrap();
            let all: Vec<NodeIndex> = layout.first_nodes(file, u16::MAX).collect();
            prop_assert_eq!(all.len(), usize::from(nodes));
            for (position, node) in all.iter().enumerate() {
                prop_assert_eq!(usize::from(layout.position(file, *node)), position);
            }
            let used: HashSet<NodeIndex> =
                layout.extents(file, 0, length).map(|extent| extent.node).collect();
            let first: HashSet<NodeIndex> =
                layout.first_nodes(file, used.len() as u16).collect();
            prop_assert_eq!(&used, &first);
            let last = layout.node_of_offset(file, length - 1);
            prop_assert_eq!(layout.last_position(length), layout.position(file, last));
        }

        #[test]
        fn object_on_one_node_equals_the_file(stripe in 1u64..100, file: u64, offset in 0u64..9999) {
            for layout in layouts(1, stripe) {
                let extents: Vec<_> = layout.extents(file, offset, 777).collect();
                let node = NodeIndex(0);
                prop_assert_eq!(extents, vec![Extent { node, object_offset: offset, offset, length: 777 }]);
            }
        }
    }

    #[test]
    fn files_grow_to_more_nodes_in_few_steps() {
        let layout = Layout::new(300, 1 << 20).unwrap();
        let widths = [0, 7, 8, 63, 64, 299].map(|position| layout.width_for(position));
        assert_eq!(widths, [8, 8, 64, 64, 300, 300]);
        assert_eq!(Layout::new(3, 1 << 20).unwrap().width_for(2), 3);
        assert_eq!(Layout::SINGLE_NODE.width_for(0), 1);
    }

    /// Durable data depend on these values.
    #[test]
    fn known_files_have_recorded_nodes() {
        let layout = Layout::new(5, 1 << 20).unwrap();
        let nodes = [1u64, 2, 1 << 48, u64::MAX].map(|file| layout.node_of_stripe(file, 3).0);
        assert_eq!(nodes, [3, 3, 4, 4]);
        assert_eq!(layout.metadata_node_for_dir(1u64, b"results").0, 2);
    }
}
