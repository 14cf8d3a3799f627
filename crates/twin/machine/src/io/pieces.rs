//! Transfers cut into requests.

/// The bytes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte in the file.
    pub offset: u64,
    pub bytes: u64,
}

/// The pieces of a transfer: none crosses a boundary of a stripe or substripe, none is longer than
/// `max_request`. An iterator over the rest of the transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub offset: u64,
    pub end: u64,
    pub stripe: u64,
    pub substripe: u64,
    pub max_request: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.offset >= self.end {
            return None;
        }
        let up_to = |unit: u64| (self.offset / unit + 1) * unit;
        let end = up_to(self.stripe)
            .min(up_to(self.substripe))
            .min(self.offset + self.max_request)
            .min(self.end);
        let piece = Piece { offset: self.offset, bytes: end - self.offset };
        self.offset = end;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_the_transfer_once_and_cross_no_boundary(
            offset in 0u64..100_000, bytes in 1u64..100_000, stripe in 1u64..20_000, substripe in 1u64..5_000, max_request in 1u64..8_000
        ) {
            let pieces: Vec<_> = Pieces { offset, end: offset + bytes, stripe, substripe, max_request }.collect();
            let mut at = offset;
            for p in &pieces {
                prop_assert_eq!(p.offset, at);
                prop_assert!(p.bytes > 0 && p.bytes <= max_request);
                prop_assert_eq!(p.offset / stripe, (p.offset + p.bytes - 1) / stripe);
                prop_assert_eq!(p.offset / substripe, (p.offset + p.bytes - 1) / substripe);
                at += p.bytes;
            }
            prop_assert_eq!(at, offset + bytes);
        }
    }
}
