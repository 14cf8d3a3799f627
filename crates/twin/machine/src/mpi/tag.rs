//! Tags of MPI messages in the network.

/// Bits of a tag for the part of the message, the number of the round, and that of the operation.
const PART_BITS: u32 = 2;
const ROUND_BITS: u32 = 20;
const SEQUENCE_BITS: u32 = super::team::SEQUENCE_BITS;

/// A part of the exchange of a message; its discriminant is its number in tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The data.
    Data = 0,
    /// Sender to receiver: a message waits to be sent.
    Request = 1,
    /// Receiver to sender: send the data.
    Clear = 2,
}

/// The tag of a message: operation, round and part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiTag {
    /// Number of the operation.
    pub sequence: u64,
    /// Number of the round.
    pub round: u32,
    /// Part of the exchange.
    pub part: Part,
}

impl MpiTag {
    /// The tag as a number.
    pub fn pack(self) -> u64 {
        assert!(self.round < 1 << ROUND_BITS && self.sequence < 1 << SEQUENCE_BITS, "{self:?}");
        (self.sequence << ROUND_BITS | u64::from(self.round)) << PART_BITS | self.part as u64
    }
}
