//! Layout of a file's bytes on a burst-buffer node: objects, blocks, flash stripes.

use forebay_machine_file::machine::BurstBuffer;
use forebay_random::{hash, stream_label};
use forebay_workload::ior::FileId;

/// Bytes of a file on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub file: FileId,
    /// First byte in the file.
    pub offset: u64,
    pub bytes: u64,
}

impl Extent {
    /// The flash commands that access it, one for each flash stripe: controller and bytes.
    pub fn commands(self, make: &BurstBuffer) -> impl Iterator<Item = (usize, u64)> + '_ {
        let unit = make.flash_stripe.0.max(1);
        let (mut offset, end) = (self.offset, self.offset + self.bytes);
        std::iter::from_fn(move || {
            let stripe = offset / unit;
            let bytes = end.min((stripe + 1) * unit).checked_sub(offset).filter(|&b| b > 0)?;
            offset += bytes;
            Some((controller_of(self.file, stripe, make), bytes))
        })
    }

    /// Controllers of the blocks of the file system of which it covers only a part.
    pub fn partial_blocks(self, make: &BurstBuffer) -> impl Iterator<Item = usize> {
        let block = make.block.0.max(1);
        let (first, end) = (self.offset, self.offset + self.bytes);
        let (head, tail) = (!first.is_multiple_of(block), !end.is_multiple_of(block));
        let one_block = first / block == (end - 1) / block;
        let controller = |at: u64| controller_of(self.file, at / make.flash_stripe.0.max(1), make);
        let tail = (tail && !(head && one_block)).then(|| controller(end - 1));
        head.then(|| controller(first)).into_iter().chain(tail)
    }
}

/// Controller of a flash stripe of a file. Flash stripes go to the cards round-robin, and on a card
/// to the controllers round-robin, beginning with one that varies from stripe to stripe and from
/// file to file: each stripe is an extent that the file system there allocates independently.
fn controller_of(file: FileId, flash_stripe: u64, make: &BurstBuffer) -> usize {
    let (cards, controllers) =
        (u64::from(make.cards.max(1)), u64::from(make.controllers_per_card.max(1)));
    let (card, on_card) = (flash_stripe % cards, flash_stripe / cards);
    let stripe = flash_stripe * make.flash_stripe.0 / make.stripe.0.max(1);
    let first = hash(file.0, stream_label("extents") ^ card, stripe) % controllers;
    (card * controllers + (first + on_card) % controllers) as usize
}

/// Object of a file's byte on its node, among `nodes` over which the file is striped.
pub(crate) fn object_of(offset: u64, nodes: u64, make: &BurstBuffer) -> u32 {
    let stripe = make.stripe.0.max(1);
    let on_node = offset / (stripe * nodes.max(1)) * stripe + offset % stripe;
    (on_node / make.substripe.0.max(1) % u64::from(make.objects_per_file.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_machine_file::machine::Machine;

    fn toy() -> BurstBuffer {
        Machine::load("toy").unwrap().burst_buffer.unwrap()
    }

    fn extent(offset: u64, bytes: u64) -> Extent {
        Extent { file: FileId(3), offset, bytes }
    }

    #[test]
    fn partial_blocks_are_those_at_the_ends_of_a_write() {
        for (offset, bytes, expected) in [
            (0, 4096, 0),
            (0, 100, 1),
            (4096, 8192, 0),
            (100, 4096, 2),
            (100, 200, 1),
            (4000, 96, 1),
            (4000, 4192, 1),
        ] {
            let found = extent(offset, bytes).partial_blocks(&toy()).count();
            assert_eq!(found, expected, "{offset} {bytes}");
        }
    }

    #[test]
    fn commands_cover_an_extent_and_use_the_controllers_in_turn() {
        let (make, unit) = (toy(), 512 * 1024);
        let commands: Vec<_> = extent(unit - 100, 2 * unit + 100).commands(&make).collect();
        assert_eq!(commands.iter().map(|c| c.1).collect::<Vec<_>>(), [100, unit, unit]);
        assert_ne!(commands[1].0, commands[2].0);
        assert_eq!(extent(7, 1).commands(&make).count(), 1);
    }
}
