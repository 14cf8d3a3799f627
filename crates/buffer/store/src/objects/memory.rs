//! Objects in memory, for simulation: contents as ranges of bytes, space in blocks of 4 KiB.

use super::{FetchedObject, ObjectId, ObjectStat, Objects};
use forebay_protocol::message::{Allocate, OpenMode};
use forebay_protocol::{Errno, Ino, InstanceId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BLOCK: u64 = 4096;

#[derive(Clone, Debug, Default)]
struct Object {
    bytes: Vec<u8>,
    blocks: BTreeSet<u64>,
    atime: Timestamp,
    mtime: Timestamp,
}

#[derive(Debug, Default)]
struct Tables {
    instances: BTreeSet<InstanceId>,
    objects: BTreeMap<ObjectId, Object>,
    synced: BTreeMap<ObjectId, Object>,
    at_rest: BTreeSet<ObjectId>,
}

/// Simulated objects. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryObjects(Arc<Mutex<Tables>>);

impl MemoryObjects {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails: contents are as they were last synced. Removed objects stay removed.
    pub fn power_cut(&self) {
        let mut tables = self.lock();
        let Tables {
            objects, synced, ..
        } = &mut *tables;
        for (id, object) in objects.iter_mut() {
            *object = synced.get(id).cloned().unwrap_or_default();
        }
    }

    /// Opening the object to write takes a sync from now on, until it is [unsealed](Self::unseal).
    pub fn add_durable_checksums(&self, id: ObjectId) {
        self.lock().at_rest.insert(id);
    }

    /// The object may be written to.
    pub fn invalidate_checksums(&self, id: ObjectId) {
        self.lock().at_rest.remove(&id);
    }

    /// Make an object durable.
    pub fn sync_object(&self, id: ObjectId) {
        let mut tables = self.lock();
        if let Some(object) = tables.objects.get(&id).cloned() {
            tables.synced.insert(id, object);
        }
    }

    /// All of an object; `None` if it is longer than `most` bytes.
    pub fn fetch_object(&self, id: ObjectId, most: usize) -> Result<Option<FetchedObject>, Errno> {
        let stat = Some(self.stat(id)?);
        let data = self.with(id, |object| object.bytes.clone())?;
        Ok((data.len() <= most).then_some(FetchedObject { stat, data }))
    }

    /// Make all objects durable.
    pub fn sync_all_objects(&self) {
        let mut tables = self.lock();
        tables.synced = tables.objects.clone();
    }

    /// Write as a client with a descriptor does.
    pub fn write_object(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut tables = self.lock();
        let object = tables.objects.get_mut(&id).ok_or(Errno::ENOENT)?;
        let end = offset as usize + data.len();
        if object.bytes.len() < end {
            object.bytes.resize(end, 0);
        }
        object.bytes[offset as usize..end].copy_from_slice(data);
        object
            .blocks
            .extend(offset / BLOCK..(end as u64).div_ceil(BLOCK));
        Ok(())
    }

    /// All bytes of an object.
    pub fn object_contents(&self, id: ObjectId) -> Option<Vec<u8>> {
        self.lock()
            .objects
            .get(&id)
            .map(|object| object.bytes.clone())
    }

    fn with<T>(&self, id: ObjectId, act: impl FnOnce(&mut Object) -> T) -> Result<T, Errno> {
        self.lock()
            .objects
            .get_mut(&id)
            .map(act)
            .ok_or(Errno::ENOENT)
    }
}

impl Objects for MemoryObjects {
    type Descriptor = ObjectId;

    fn add_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        self.lock().instances.insert(id);
        Ok(())
    }

    fn remove_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        let mut tables = self.lock();
        tables.instances.remove(&id);
        tables.objects.retain(|object, _| object.instance != id);
        Ok(())
    }

    fn list_instances(&self) -> Result<Vec<InstanceId>, Errno> {
        Ok(self.lock().instances.iter().copied().collect())
    }

    fn list_objects(&self, id: InstanceId) -> Result<Vec<(Ino, u64)>, Errno> {
        let tables = self.lock();
        let objects = tables
            .objects
            .iter()
            .filter(|(object, _)| object.instance == id);
        Ok(objects
            .map(|(id, object)| (id.ino, object.blocks.len() as u64 * BLOCK))
            .collect())
    }

    fn create(&mut self, id: ObjectId, atime: Timestamp, mtime: Timestamp) -> Result<(), Errno> {
        let object = Object {
            atime,
            mtime,
            ..Object::default()
        };
        self.lock().objects.entry(id).or_insert(object);
        Ok(())
    }

    fn put_object(
        &mut self,
        id: ObjectId,
        data: &[u8],
        atime: Timestamp,
        mtime: Timestamp,
    ) -> Result<ObjectStat, Errno> {
        let object = Object {
            bytes: data.to_vec(),
            blocks: (0..(data.len() as u64).div_ceil(BLOCK)).collect(),
            atime,
            mtime,
        };
        self.lock().objects.insert(id, object);
        self.stat(id)
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat, Errno> {
        self.with(id, |object| ObjectStat {
            size: object.bytes.len() as u64,
            space: object.blocks.len() as u64 * BLOCK,
            atime: object.atime,
            mtime: object.mtime,
        })
    }

    fn truncate(&mut self, id: ObjectId, size: u64) -> Result<(), Errno> {
        self.with(id, |object| {
            object.bytes.resize(size as usize, 0);
            object.blocks.retain(|block| *block < size.div_ceil(BLOCK));
        })
    }

    fn set_times(
        &mut self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        self.with(id, |object| {
            object.atime = atime.unwrap_or(object.atime);
            object.mtime = mtime.unwrap_or(object.mtime);
        })
    }

    fn allocate(
        &mut self,
        id: ObjectId,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> Result<(), Errno> {
        self.with(id, |object| {
            let end = offset + length;
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
                object
                    .blocks
                    .retain(|b| !(offset.div_ceil(BLOCK)..end / BLOCK).contains(b));
            } else {
                object.blocks.extend(offset / BLOCK..end.div_ceil(BLOCK));
            }
        })
    }

    fn remove(&mut self, id: ObjectId) -> Result<(), Errno> {
        let mut tables = self.lock();
        tables.objects.remove(&id);
        tables.synced.remove(&id);
        Ok(())
    }

    fn has_durable_checksums(&self, id: ObjectId) -> bool {
        self.lock().at_rest.contains(&id)
    }

    fn open(&self, id: ObjectId, _mode: OpenMode) -> Result<ObjectId, Errno> {
        Ok(id)
    }
}
