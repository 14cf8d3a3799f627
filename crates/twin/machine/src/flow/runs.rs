//! Runs: transfers of a process, one after another, to the same servers and objects of a file.

use crate::io::IoJob;
use forebay_workload::ior::{Access, AccessPattern, FileId, Transfer};

/// An object of a file on a server: the file, the server's index in the storage, the object.
pub(super) type ObjectKey = (u64, u32, u32);

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub transfers: u64,
    pub bytes: u64,
    /// First byte in the file; the run's bytes follow each other.
    pub offset: u64,
    /// Servers by their indices in the storage, in ascending order, with their shares of the bytes.
    pub servers: Vec<(u32, f64)>,
    /// Objects in ascending order, with their shares of the bytes.
    pub objects: Vec<(ObjectKey, f64)>,
}

/// Finds runs of the processes in one phase.
#[derive(Clone)]
pub(super) struct Runs<'a> {
    job: &'a IoJob,
    pub pattern: AccessPattern,
    pub access: Access,
}

impl<'a> Runs<'a> {
    pub fn new(job: &'a IoJob, pattern: AccessPattern, access: Access) -> Self {
        Runs { job, pattern, access }
    }

    /// The run of a process that begins with transfer `first`, up to transfer `last`, not included.
    pub fn run(&self, rank: u32, first: u64, last: u64) -> Run {
        let transfer = self.pattern.transfer(rank, self.access, first);
        let objects = self.objects(&transfer);
        let mut run = Run {
            transfers: 1,
            bytes: transfer.bytes,
            offset: transfer.offset,
            servers: shares(objects.iter().map(|&((_, server, _), bytes)| (server, bytes))),
            objects: shares(objects.into_iter()),
        };
        if run.objects.len() == 1 {
            let mut end = transfer.offset + transfer.bytes;
            while first + run.transfers < last {
                let index = first + run.transfers;
                let next = self.pattern.transfer(rank, self.access, index);
                let follows = next.file == transfer.file && next.offset == end;
                if !follows || !self.lies_in(&next, run.objects[0].0) {
                    break;
                }
                let transfers = self.transfers_in_unit(index, &next).min(last - index);
                let nth = |n: u64| self.pattern.transfer(rank, self.access, index + n);
                debug_assert!((0..transfers).all(|n| self.lies_in(&nth(n), run.objects[0].0)));
                let last_of_unit = nth(transfers - 1);
                end = last_of_unit.offset + last_of_unit.bytes;
                run.transfers += transfers;
            }
            run.bytes = end - transfer.offset;
        }
        run
    }

    /// Transfers from number `index` on, which is `transfer`, that follow it to the end of its part of the
    /// file that is in one object: at least one, and not always all.
    fn transfers_in_unit(&self, index: u64, transfer: &Transfer) -> u64 {
        let end = self.job.end_in_object(transfer.offset);
        let others = end.saturating_sub(transfer.offset + transfer.bytes);
        let others = others / self.pattern.transfer_bytes().max(1);
        self.pattern.contiguous_transfers(index).min(1 + others)
    }

    /// The objects of a transfer's requests, and their bytes.
    fn objects(&self, transfer: &Transfer) -> Vec<(ObjectKey, u64)> {
        let pieces = self.job.pieces(transfer.offset, transfer.bytes);
        pieces.map(|piece| (self.object(transfer.file, piece.offset), piece.bytes)).collect()
    }

    /// The object at an offset of the file of a process.
    pub fn object_at(&self, rank: u32, offset: u64) -> ObjectKey {
        self.object(self.pattern.file(rank, self.access), offset)
    }

    fn object(&self, file: FileId, offset: u64) -> ObjectKey {
        let server = self.job.server_of(file, offset);
        (file.0, server, self.job.object_of(offset))
    }

    fn lies_in(&self, transfer: &Transfer, object: ObjectKey) -> bool {
        let mut pieces = self.job.pieces(transfer.offset, transfer.bytes);
        pieces.all(|piece| self.object(transfer.file, piece.offset) == object)
    }
}

/// Sums bytes by key, as shares of all; in the order of the keys.
fn shares<K: Ord + Copy>(bytes: impl Iterator<Item = (K, u64)>) -> Vec<(K, f64)> {
    let mut all: Vec<(K, u64)> = bytes.collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    all.dedup_by(|next, before| {
        let same = next.0 == before.0;
        before.1 += if same { next.1 } else { 0 };
        same
    });
    let total: u64 = all.iter().map(|(_, bytes)| bytes).sum();
    all.into_iter().map(|(key, bytes)| (key, bytes as f64 / total.max(1) as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_key_are_added() {
        let found = shares([(7, 10), (3, 20), (7, 10)].into_iter());
        assert_eq!(found, [(3, 0.5), (7, 0.5)]);
    }
}
