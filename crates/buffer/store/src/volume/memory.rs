//! The metadata of a volume: charged to its capacity, and to the memory budget of the node.
//!
//! The limit of inodes includes [`BYTES_PER_INODE`] for each. What exceeds that in sum, such as large
//! extended attributes, many hard links or long names, is charged to the capacity like data.

use super::Volume;
use super::space::Space;
use crate::context::{Context, MetadataMemory};
use crate::namespace::Change;
use crate::objects::Objects;
use crate::state::VolumeState;
use forebay_protocol::Errno;

/// Bytes of metadata that each inode of the limit includes.
const BYTES_PER_INODE: u64 = 512;
/// Memory for a data object.
const OBJECT_BYTES: u64 = 64;
/// Memory for an open handle.
const HANDLE_BYTES: u64 = 256;
/// Memory for an open handle of a data object that its metadata node confirms.
const CONFIRMATION_BYTES: u64 = 256;
/// Memory of a typical file with its name.
const TYPICAL_FILE_BYTES: u64 = 512;

/// Bytes charged to the capacity for `bytes` of metadata.
fn charge(state: &VolumeState, bytes: u64) -> u64 {
    bytes.saturating_sub(state.spec.inodes.saturating_mul(BYTES_PER_INODE))
}

/// `ENOSPC` if metadata of a volume that takes `own` bytes of memory may not grow by `growth` bytes.
pub fn check_growth(
    (state, space): (&VolumeState, &Space),
    (memory, own): (&MetadataMemory, u64),
    growth: u64,
) -> Result<(), Errno> {
    if growth == 0 {
        return Ok(());
    }
    let bytes = state.names.memory_bytes();
    let more = charge(state, bytes + growth) - charge(state, bytes);
    let free = space.limit(state.spec.capacity).saturating_sub(space.used());
    if (more > 0 && more > free) || growth > memory.available(own) {
        return Err(Errno::ENOSPC);
    }
    Ok(())
}

impl<O: Objects> Volume<O> {
    /// `ENOSPC` if there is no space for the metadata that a change adds.
    pub fn check_memory(&self, node: &Context<O>, change: &Change) -> Result<(), Errno> {
        let growth = self.names().growth(change);
        check_growth((&self.state, &self.space), (&node.memory, self.accounted_bytes), growth)
    }

    /// Inodes that the node has memory for.
    pub fn free_inodes(&self, memory: &MetadataMemory) -> u64 {
        memory.available(self.accounted_bytes) / TYPICAL_FILE_BYTES
    }

    /// Bytes charged to the capacity for names, inodes and extended attributes.
    pub fn metadata_charge(&self) -> u64 {
        charge(&self.state, self.names().memory_bytes() + self.prepared_bytes)
    }

    /// Count the memory of changes that transactions are prepared for.
    pub fn count_prepared(&mut self) {
        let rounds = self.state.prepared.values().flat_map(|prepared| &prepared.rounds);
        let changes = rounds.flat_map(|round| &round.changes);
        self.prepared_bytes = changes.map(|change| self.state.names.growth(change)).sum();
    }

    /// Account for the memory that the volume takes now.
    pub fn account_memory(&mut self, memory: &mut MetadataMemory) {
        let metadata = self.names().memory_bytes() + self.prepared_bytes;
        self.space.charge_metadata(self.metadata_charge());
        let objects = self.space.object_count() as u64 * OBJECT_BYTES;
        let handles = self.handles.len() as u64 * HANDLE_BYTES;
        let confirmations = self.confirmations.len() as u64 * CONFIRMATION_BYTES;
        let bytes = metadata + objects + handles + confirmations;
        memory.replace(self.accounted_bytes, bytes);
        self.accounted_bytes = bytes;
    }

    /// The memory that the node was told the volume takes.
    pub fn accounted_bytes(&self) -> u64 {
        self.accounted_bytes
    }

    /// The volume is removed.
    pub fn release_memory(self, memory: &mut MetadataMemory) {
        memory.replace(self.accounted_bytes, 0);
    }
}
