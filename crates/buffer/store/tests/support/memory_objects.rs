//! [`Objects`] in memory, for simulations: contents as bytes, space in blocks of 4 KiB. Data that cannot be
//! written back are lost, and every file that was open then reports that once, as in Linux.

use super::object_faults::{FaultRates, ObjectFaults};
use forebay_protocol::message::{Allocate, FoundExtent, MAX_INLINE_FILE_BYTES, OpenMode};
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Attr, Errno, Ino, InstanceId, Reply, Timestamp};
use forebay_store::node::fetch_reply;
use forebay_store::objects::{FetchedObject, ObjectId, Objects, Times};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

const BLOCK_BYTES: u64 = 4096;

#[derive(Clone, Debug, Default)]
struct MemoryObject {
    bytes: Vec<u8>,
    blocks: BTreeSet<u64>,
    atime: Timestamp,
    mtime: Timestamp,
    /// Blocks that were written and not written back.
    dirty: BTreeSet<u64>,
    /// The least length since all was written back.
    least_length: Option<usize>,
    /// How often data could not be written back, and how many of these somebody was told.
    failures: u64,
    reported: u64,
}

impl MemoryObject {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(data);
        let blocks = offset as u64 / BLOCK_BYTES..(end as u64).div_ceil(BLOCK_BYTES);
        self.blocks.extend(blocks.clone());
        self.dirty.extend(blocks);
    }

    /// Dirty blocks are as in `durable` again; the length remains.
    fn lose_dirty(&mut self, durable: Option<&MemoryObject>) {
        let durable = durable.map_or(&[][..], |durable| &durable.bytes[..]);
        let kept = self.least_length.unwrap_or(usize::MAX).min(durable.len());
        for block in std::mem::take(&mut self.dirty) {
            let start = (block * BLOCK_BYTES) as usize;
            let end = self.bytes.len().min(start + BLOCK_BYTES as usize);
            if start < end {
                self.bytes[start..end].fill(0);
                let kept = durable.get(start..kept.clamp(start, end)).unwrap_or_default();
                self.bytes[start..start + kept.len()].copy_from_slice(kept);
            }
        }
        self.failures += 1;
    }
}

#[derive(Default)]
struct ObjectTables {
    instances: BTreeSet<InstanceId>,
    objects: BTreeMap<ObjectId, MemoryObject>,
    durable: BTreeMap<ObjectId, MemoryObject>,
    with_durable_checksums: BTreeSet<ObjectId>,
    faults: ObjectFaults,
    /// Objects that have lost data since this was last taken.
    lost: Vec<ObjectId>,
    /// How often any lost some.
    losses: u64,
}

impl ObjectTables {
    /// Write an object back, which may fail.
    fn write_back(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get_mut(&id) else {
            return;
        };
        if !object.dirty.is_empty() && self.faults.fails_write_back() {
            object.lose_dirty(self.durable.get(&id));
            self.lost.push(id);
            self.losses += 1;
        }
        object.dirty.clear();
        object.least_length = None;
        self.durable.insert(id, object.clone());
    }
}

/// Simulated objects. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryObjects(Arc<Mutex<ObjectTables>>);

impl MemoryObjects {
    fn tables(&self) -> MutexGuard<'_, ObjectTables> {
        self.0.lock().unwrap()
    }

    /// The power fails: contents are as they were last synced. Removed objects stay removed.
    pub fn power_cut(&self) {
        let mut tables = self.tables();
        let ObjectTables { objects, durable, .. } = &mut *tables;
        for (id, object) in objects.iter_mut() {
            *object = durable.get(id).cloned().unwrap_or_default();
        }
    }

    /// From now on, opening the object for writing takes a sync, until its checksums are
    /// [invalidated](Self::invalidate_checksums).
    pub fn add_durable_checksums(&self, id: ObjectId) {
        self.tables().with_durable_checksums.insert(id);
    }

    /// Invalidate the checksums of an object.
    pub fn invalidate_checksums(&self, id: ObjectId) {
        self.tables().with_durable_checksums.remove(&id);
    }

    /// Contents after a power cut.
    #[allow(dead_code, reason = "each simulation uses a part")]
    pub fn durable_contents(&self, id: ObjectId) -> Option<Vec<u8>> {
        self.tables().durable.get(&id).map(|object| object.bytes.clone())
    }

    /// From now on operations on data fail at these rates.
    pub fn set_faults(&self, seed: u64, rates: FaultRates) {
        self.tables().faults = ObjectFaults::new(seed, rates);
    }

    /// `EIO` if reading or writing an object fails.
    pub fn check_transfer(&self) -> Result<(), Errno> {
        self.tables().faults.check_transfer()
    }

    /// The objects that have lost data since the last call.
    pub fn take_lost(&self) -> Vec<ObjectId> {
        std::mem::take(&mut self.tables().lost)
    }

    /// The failures of which a file that is opened now does not learn.
    pub fn failures_before(&self, id: ObjectId) -> u64 {
        self.with_object(id, |object| object.reported).unwrap_or(0)
    }

    /// Make an object durable by an open file that was told of `seen` failures.
    pub fn sync_opened(&self, id: ObjectId, seen: &mut u64) -> Result<(), Errno> {
        let mut tables = self.tables();
        tables.write_back(id);
        let Some(object) = tables.objects.get_mut(&id).filter(|object| object.failures > *seen)
        else {
            return Ok(());
        };
        (*seen, object.reported) = (object.failures, object.failures);
        Err(Errno::EIO)
    }

    /// Make an object durable by a file that is opened for that.
    pub fn sync_object(&self, id: ObjectId) -> Result<(), Errno> {
        self.sync_opened(id, &mut self.failures_before(id))
    }

    /// The reply to a request for a whole file; see `Effect::FetchObject`.
    pub fn fetch(&self, id: ObjectId, attr: Attr, length: Option<u64>) -> Reply {
        let object = self.stat(id).map(|stat| {
            let data = self.object_contents(id).unwrap_or_default();
            let is_small = data.len() <= MAX_INLINE_FILE_BYTES;
            is_small.then_some(FetchedObject { stat: Some(stat), data })
        });
        fetch_reply(attr, length, object)
    }

    /// Make all objects durable. Returns how often any have lost data so far.
    pub fn sync_all_objects(&self) -> u64 {
        let mut tables = self.tables();
        for id in tables.objects.keys().copied().collect::<Vec<_>>() {
            tables.write_back(id);
        }
        tables.losses
    }

    /// How often any object has lost data.
    pub fn losses(&self) -> u64 {
        self.tables().losses
    }

    /// Write as a client with a descriptor does.
    pub fn write_object(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.with_object(id, |object| object.write(offset as usize, data))
    }

    /// All bytes of an object.
    pub fn object_contents(&self, id: ObjectId) -> Option<Vec<u8>> {
        self.with_object(id, |object| object.bytes.clone()).ok()
    }

    fn with_object<T>(
        &self,
        id: ObjectId,
        act: impl FnOnce(&mut MemoryObject) -> T,
    ) -> Result<T, Errno> {
        let mut tables = self.tables();
        tables.objects.get_mut(&id).map(act).ok_or(Errno::ENOENT)
    }
}

impl Objects for MemoryObjects {
    type Descriptor = ObjectId;

    fn add_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        self.tables().instances.insert(id);
        Ok(())
    }

    fn remove_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        let mut tables = self.tables();
        tables.instances.remove(&id);
        tables.objects.retain(|object, _| object.instance != id);
        Ok(())
    }

    fn list_instances(&self) -> Result<Vec<InstanceId>, Errno> {
        Ok(self.tables().instances.iter().copied().collect())
    }

    fn list_objects(&self, id: InstanceId) -> Result<Vec<(Ino, u64)>, Errno> {
        let tables = self.tables();
        let objects = tables.objects.iter().filter(|(object, _)| object.instance == id);
        Ok(objects.map(|(id, object)| (id.ino, object.blocks.len() as u64 * BLOCK_BYTES)).collect())
    }

    fn create(&mut self, id: ObjectId, (atime, mtime): Times) -> Result<(), Errno> {
        let object = MemoryObject { atime, mtime, ..MemoryObject::default() };
        self.tables().objects.entry(id).or_insert(object);
        Ok(())
    }

    fn put_object(
        &mut self,
        id: ObjectId,
        data: &[u8],
        (atime, mtime): Times,
    ) -> Result<ObjectInfo, Errno> {
        let mut object = MemoryObject { atime, mtime, ..MemoryObject::default() };
        object.write(0, data);
        self.tables().objects.insert(id, object);
        self.stat(id)
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectInfo, Errno> {
        self.with_object(id, |object| ObjectInfo {
            size: object.bytes.len() as u64,
            space: object.blocks.len() as u64 * BLOCK_BYTES,
            atime: object.atime,
            mtime: object.mtime,
        })
    }

    fn truncate(&mut self, id: ObjectId, size: u64) -> Result<(), Errno> {
        self.with_object(id, |object| {
            object.bytes.resize(size as usize, 0);
            let least = object.least_length.unwrap_or(usize::MAX);
            object.least_length = Some(least.min(size as usize));
            let end = size.div_ceil(BLOCK_BYTES);
            object.blocks.retain(|block| *block < end);
            object.dirty.retain(|block| *block < end);
            debug_assert!(object.blocks.last().is_none_or(|last| *last < end));
        })
    }

    fn set_times(
        &mut self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        self.with_object(id, |object| {
            object.atime = atime.unwrap_or(object.atime);
            object.mtime = mtime.unwrap_or(object.mtime);
        })
    }

    fn bytes_with_blocks(&self, id: ObjectId, range: Range<u64>) -> Result<u64, Errno> {
        self.with_object(id, |object| {
            let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
            let bytes = |block: &u64| {
                let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
                end.min(range.end) - start.max(range.start)
            };
            object.blocks.range(blocks).map(bytes).sum()
        })
    }

    fn allocate(&mut self, id: ObjectId, range: Range<u64>, what: Allocate) -> Result<(), Errno> {
        self.with_object(id, |object| {
            let Range { start: offset, end } = range;
            let keep_size = match what {
                Allocate::Reserve { keep_size } | Allocate::Zero { keep_size } => keep_size,
                Allocate::PunchHole => true,
            };
            if !keep_size && object.bytes.len() < end as usize {
                object.bytes.resize(end as usize, 0);
            }
            if !matches!(what, Allocate::Reserve { .. }) {
                let length = object.bytes.len();
                object.bytes[(offset as usize).min(length)..(end as usize).min(length)].fill(0);
            }
            if matches!(what, Allocate::PunchHole) {
                let freed = offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES;
                object.blocks.retain(|block| !freed.contains(block));
            } else {
                let taken = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
                object.blocks.extend(taken);
            }
        })
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<FoundExtent, Errno> {
        self.with_object(id, |object| {
            let length = object.bytes.len() as u64;
            let mut places = offset..length;
            let at = places.find(|at| object.blocks.contains(&(at / BLOCK_BYTES)) != hole);
            let end = (hole && offset < length).then_some(length);
            FoundExtent { at: at.or(end), length }
        })
    }

    fn remove(&mut self, id: ObjectId, _: u64) -> Result<(), Errno> {
        let mut tables = self.tables();
        tables.objects.remove(&id);
        tables.durable.remove(&id);
        Ok(())
    }

    fn has_durable_checksums(&self, id: ObjectId) -> bool {
        self.tables().with_durable_checksums.contains(&id)
    }

    fn open(&self, id: ObjectId, _mode: OpenMode) -> Result<ObjectId, Errno> {
        Ok(id)
    }
}
