//! Records that are written to a log in one request.

use crate::format::{HEAD_BYTES, Head, MAX_PART, padded};

/// Most records of a request: 1 MiB of data, which stay in the processor's cache between their
/// checksums and their way to the file.
pub(crate) const MAX_RECORDS: usize = (1 << 20) / MAX_PART as usize;

/// Consecutive records, without a copy of their data.
#[derive(Debug)]
pub(crate) struct RecordBatch<'a> {
    heads: [[u8; HEAD_BYTES]; MAX_RECORDS],
    payloads: [&'a [u8]; MAX_RECORDS],
    count: usize,
    bytes: u64,
}

impl<'a> RecordBatch<'a> {
    /// No records.
    pub fn new() -> RecordBatch<'a> {
        RecordBatch {
            heads: [[0; HEAD_BYTES]; MAX_RECORDS],
            payloads: [&[]; MAX_RECORDS],
            count: 0,
            bytes: 0,
        }
    }

    /// Adds a record.
    ///
    /// # Panics
    /// If the batch is full, or the payload is not that of the head.
    pub fn push(&mut self, head: &Head, salt: u32, payload: &'a [u8]) {
        assert!(!self.is_full(), "a full batch of records");
        assert_eq!(head.length as usize, payload.len(), "a head without its payload");
        self.heads[self.count] = head.encode(salt);
        self.payloads[self.count] = payload;
        self.count += 1;
        self.bytes += head.record_bytes();
    }

    pub fn is_full(&self) -> bool {
        self.count == MAX_RECORDS
    }

    /// Number of records.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the records, padded.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lengths of the payloads.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        self.payloads[..self.count].iter().map(|payload| payload.len() as u64)
    }

    /// The bytes in their order, with empty parts at the end.
    pub fn parts(&self) -> [&[u8]; 3 * MAX_RECORDS] {
        let mut parts: [&[u8]; 3 * MAX_RECORDS] = [&[]; 3 * MAX_RECORDS];
        for (index, payload) in self.payloads[..self.count].iter().enumerate() {
            let padding = padded(payload.len() as u64) as usize - payload.len();
            parts[3 * index] = &self.heads[index];
            parts[3 * index + 1] = payload;
            parts[3 * index + 2] = &[0; 8][..padding];
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_RECORDS, RecordBatch};
    use crate::checksum::crc32c;
    use crate::format::{Head, Kind};

    fn head(sequence: u64, payload: &[u8]) -> Head {
        Head {
            kind: Kind::Write,
            sequence,
            durable: 0,
            epoch: 0,
            view: 0,
            position: 0,
            length: payload.len() as u32,
            payload_sum: crc32c(payload),
        }
    }

    #[test]
    fn parts_are_heads_payloads_and_padding() {
        let payloads: [&[u8]; MAX_RECORDS] = [&[1; 8], &[2; 13], &[], &[3; 3]];
        let mut batch = RecordBatch::new();
        let mut expected = Vec::new();
        for (index, payload) in payloads.iter().enumerate() {
            assert!(!batch.is_full());
            let head = head(index as u64, payload);
            batch.push(&head, 7, payload);
            expected.extend_from_slice(&head.encode(7));
            expected.extend_from_slice(payload);
            expected.resize(expected.len().next_multiple_of(8), 0);
            assert_eq!(batch.parts().concat(), expected);
            assert_eq!(batch.bytes(), expected.len() as u64);
        }
        assert!(batch.is_full());
        assert_eq!(batch.count(), MAX_RECORDS);
        assert_eq!(batch.lengths().collect::<Vec<_>>(), [8, 13, 0, 3]);
    }
}
