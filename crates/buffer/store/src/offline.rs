//! Examination and repair of a storage daemon's directory while no daemon uses it.

use crate::checkpoint::read_state;
use crate::format_version::check_format;
use crate::log::{RecoveryError, scan_log, segment_first_sequence};
use crate::lost_instances::{check_instances, dropped_instances, note_dropped};
use crate::namespace::{Body, Inode};
use crate::objects::list_instances;
use crate::recovery::{
    apply_record, checkpoint_name, list_checkpoints, load_checkpoint, recover_state,
    write_checkpoint,
};
use crate::state::{Event, NodeState, Record, VolumeState};
use crate::storage::{DiskStorage, Storage};
use forebay_net::lock_file::lock_directory;
use forebay_protocol::{FileKind, Ino, InstanceId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a log segment that is created here.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// A directory of a storage daemon, locked against daemons.
pub struct OfflineStore {
    directory: PathBuf,
    storage: DiskStorage,
    _lock: File,
}

/// Findings about a directory.
#[derive(Debug, Default, Serialize)]
pub struct CheckReport {
    /// Contents of the store that are as they should be, a sentence each.
    pub facts: Vec<String>,
    /// Damage that does not keep the daemon from starting, but costs safety or space.
    pub warnings: Vec<String>,
    /// Damage.
    pub errors: Vec<String>,
}

/// The state in a directory.
#[derive(Debug, Serialize)]
pub struct Dump {
    /// Starts of the daemon so far.
    pub epoch: u64,
    /// Number of the last log record.
    pub last_record: u64,
    /// Sessions that may continue.
    pub sessions: usize,
    /// All instances.
    pub instances: Vec<InstanceDump>,
}

/// An instance.
#[derive(Debug, Serialize)]
pub struct InstanceDump {
    /// Its id, as other commands show it.
    pub id: String,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Permissions of its root directory, in octal.
    pub mode: String,
    /// Capacity on this node, in bytes.
    pub capacity: u64,
    /// Inodes on this node.
    pub inodes: u64,
    /// Their limit.
    pub max_inodes: u64,
    /// Memory that names, inodes and attributes take, in bytes.
    pub metadata_bytes: u64,
    /// Data objects on this node.
    pub objects: u64,
    /// Space that they take, in bytes.
    pub object_bytes: u64,
    /// The number of storage nodes of the instance, and the index of this one.
    pub nodes: u16,
    /// Index of this node among them.
    pub node: u16,
    /// The names on this node, if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<NameDump>>,
}

/// A name.
#[derive(Debug, Serialize)]
pub struct NameDump {
    /// The path from the root of the instance, or from `inode <n>`, a directory whose name is on another
    /// node. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The inode.
    pub inode: u64,
    /// `file`, `directory`, `symlink` or another kind.
    pub kind: &'static str,
    /// Permissions in octal, if the inode is on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The owner, if the inode is on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Length of the data object on this node, or of the whole file if it is recorded, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The data objects of an instance: length and allocated bytes, by inode.
type ObjectTable = BTreeMap<Ino, (u64, u64)>;

/// The directory with the log and the data objects of a storage daemon, of an embedded pool, or of
/// `mount.forebay`.
///
/// # Errors
/// `directory` is none of these.
pub fn flash_directory(directory: &Path) -> Result<PathBuf, String> {
    let candidates = [directory.join("flash"), directory.to_owned()];
    let found = candidates.into_iter().find(|dir| dir.join("log").is_dir());
    found.ok_or_else(|| {
        format!(
            "{}: there is no flash/log in it; name the directory of a storage daemon or of an embedded pool",
            directory.display()
        )
    })
}

impl OfflineStore {
    /// Open the directory of a storage daemon, or of an embedded pool.
    ///
    /// # Errors
    /// It is none, or a daemon uses it.
    pub fn open(directory: &Path) -> Result<OfflineStore, String> {
        let found = flash_directory(directory)?;
        let failed = |error: io::Error| format!("{}: {error}", found.display());
        let lock = lock_directory(&found).map_err(failed)?;
        let lock = lock.ok_or_else(|| {
            format!("{}: a storage daemon is using it; stop the daemon first", found.display())
        })?;
        let storage = DiskStorage::open(&found.join("log")).map_err(failed)?;
        check_format(&storage).map_err(|error| format!("{}: {error}", found.display()))?;
        Ok(OfflineStore { directory: found, storage, _lock: lock })
    }

    /// Read checkpoints, log and objects, and report what is damaged or inconsistent. Changes nothing.
    pub fn check(&self) -> CheckReport {
        let mut report = CheckReport::default();
        if let Err(error) = self.check_checkpoints(&mut report) {
            report.errors.push(format!("the checkpoints cannot be read: {error}"));
        }
        match self.load() {
            Err(error) => report.errors.push(error.to_string()),
            Ok((state, last)) => {
                report.facts.push(format!("the log is readable up to record {last}"));
                for (id, volume) in &state.volumes {
                    self.check_volume(*id, volume, &mut report);
                }
                if let Err(error) = self.check_unknown_instances((&state, last), &mut report) {
                    report.errors.push(format!("the data objects cannot be listed: {error}"));
                }
            }
        }
        report
    }

    fn check_checkpoints(&self, report: &mut CheckReport) -> io::Result<()> {
        let found = list_checkpoints(&self.storage)?;
        let mut readable = 0;
        for sequence in &found {
            let name = checkpoint_name(*sequence);
            match read_state(&self.storage, &name) {
                Ok(_) => {
                    readable += 1;
                    report.facts.push(format!("{name} is readable"));
                }
                Err(RecoveryError::DamagedCheckpoint(_)) => {
                    report.errors.push(format!("{name} is damaged"));
                }
                Err(error) => report.errors.push(format!("{name}: {error}")),
            }
        }
        if readable == 1 && found.len() == 1 {
            let names = self.storage.list_files()?;
            let reaches_back = names.iter().any(|name| segment_first_sequence(name) == Some(1));
            if !reaches_back {
                report.warnings.push("there is no older checkpoint to fall back to".to_owned());
            }
        }
        let (oldest, newest) = (found.first(), found.last());
        if let (Some(oldest), Some(newest)) = (oldest, newest)
            && oldest < newest
            && readable == found.len()
        {
            // The segments between the two are of use only if the newer one is lost.
            if let Err(error) = scan_log(&self.storage, *oldest, &mut |_, _| Ok(())) {
                report.warnings.push(format!("the older checkpoint is of no use: {error}"));
            }
        }
        Ok(())
    }

    fn check_volume(&self, id: InstanceId, volume: &VolumeState, report: &mut CheckReport) {
        if let Some(problem) = volume.names.find_problem() {
            report.errors.push(format!("instance {id}: {problem}"));
        }
        match self.objects(id) {
            Err(error) => report.errors.push(format!("instance {id}: its data objects: {error}")),
            Ok((objects, unreadable)) => {
                let owned = objects.keys().filter(|ino| volume.names.owns(**ino));
                let unnamed = owned.filter(|ino| volume.names.get(**ino).is_none()).count();
                report.facts.push(format!(
                    "instance {id}: {} inodes, {} data objects",
                    volume.names.len(),
                    objects.len()
                ));
                if unnamed > 0 {
                    report.warnings.push(format!(
                        "instance {id}: {unnamed} data objects without a file, which the next start removes"
                    ));
                }
                report.errors.extend(unreadable.into_iter().map(|e| format!("instance {id}: {e}")));
            }
        }
    }

    fn check_unknown_instances(
        &self,
        (state, last): (&NodeState, u64),
        report: &mut CheckReport,
    ) -> io::Result<()> {
        let root = self.directory.join("objects");
        if !root.is_dir() {
            report.errors.push(format!("{} is missing", root.display()));
            return Ok(());
        }
        let mut unknown = list_instances(&root)?;
        unknown.retain(|id| !state.volumes.contains_key(id));
        match check_instances(&self.storage, (state, last), &[], &unknown) {
            Err(error) => report.errors.push(error.to_string()),
            Ok(()) => report.warnings.extend(unknown.iter().map(|id| {
                format!("instance {id} is not in the log: the next start removes its data objects")
            })),
        }
        Ok(())
    }

    /// The state after the last record of the log. Changes nothing.
    fn load(&self) -> Result<(NodeState, u64), RecoveryError> {
        let loaded = load_checkpoint(&self.storage)?;
        let mut state = loaded.state;
        let (last, _) = scan_log(&self.storage, loaded.sequence, &mut |sequence, bytes| {
            apply_record(&mut state, sequence, bytes)
        })?;
        Ok((state, last))
    }

    /// The objects of an instance, and what could not be read.
    fn objects(&self, id: InstanceId) -> io::Result<(ObjectTable, Vec<String>)> {
        let (mut objects, mut unreadable) = (ObjectTable::new(), Vec::new());
        let directory = self.directory.join("objects").join(id.to_string());
        for folder in fs::read_dir(directory)? {
            for object in fs::read_dir(folder?.path())? {
                let object = object?;
                let name = object.file_name();
                let ino = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
                match (ino, object.metadata()) {
                    (Some(ino), Ok(found)) if found.is_file() => {
                        let bytes = found.blocks() * STAT_BLOCK_BYTES;
                        objects.insert(Ino(ino), (found.len(), bytes));
                    }
                    (_, Err(error)) => {
                        unreadable.push(format!("{}: {error}", object.path().display()));
                    }
                    (_, Ok(_)) => {
                        unreadable.push(format!("{}: not an object", object.path().display()));
                    }
                }
            }
        }
        Ok((objects, unreadable))
    }

    /// All instances, `with_names` also the names in them.
    ///
    /// # Errors
    /// The log or the objects cannot be read.
    pub fn dump(&self, with_names: bool) -> Result<Dump, String> {
        let (state, last_record) = self.load().map_err(|error| error.to_string())?;
        let mut instances = Vec::new();
        for (id, volume) in &state.volumes {
            let objects = self.objects(*id).map_err(|error| format!("instance {id}: {error}"))?.0;
            let spec = &volume.spec;
            instances.push(InstanceDump {
                id: id.to_string(),
                uid: spec.uid,
                gid: spec.gid,
                mode: format!("{:o}", spec.mode),
                capacity: spec.capacity,
                inodes: volume.names.len() as u64,
                max_inodes: spec.inodes,
                metadata_bytes: volume.names.memory_bytes(),
                objects: objects.len() as u64,
                object_bytes: objects.values().map(|(_, bytes)| bytes).sum(),
                nodes: spec.placement.nodes,
                node: spec.placement.node.0,
                names: with_names.then(|| list_names(volume, &objects)),
            });
        }
        Ok(Dump { epoch: state.epoch, last_record, sessions: state.sessions.len(), instances })
    }

    /// Remove an instance from the log, durably. The next start of the daemon removes its data objects.
    /// One that the log has lost is given up.
    ///
    /// # Errors
    /// There is no such instance, or the log cannot be read or written.
    pub fn drop_instance(&self, id: InstanceId) -> Result<(), String> {
        let failed = |error: RecoveryError| error.to_string();
        let not_noted = |error: io::Error| format!("the removal cannot be noted: {error}");
        let (state, _) = self.load().map_err(failed)?;
        if !state.volumes.contains_key(&id) {
            let is_listed =
                |list: io::Result<Vec<InstanceId>>| list.is_ok_and(|ids| ids.contains(&id));
            if !is_listed(list_instances(&self.directory.join("objects")))
                || is_listed(dropped_instances(&self.storage))
            {
                return Err(format!("there is no instance {id}"));
            }
            return note_dropped(&self.storage, id).map_err(not_noted);
        }
        let (state, mut log) =
            recover_state(self.storage.clone(), SEGMENT_BYTES).map_err(failed)?;
        // The storage node's records still have it.
        note_dropped(&self.storage, id).map_err(not_noted)?;
        drop(state);
        let io_failed = |error: io::Error| format!("the log cannot be written: {error}");
        let record = Record { event: Event::DropInstance(id), request: None };
        let bytes = postcard::to_stdvec(&record)
            .map_err(|error| format!("the record cannot be encoded: {error}"))?;
        log.ensure_start_headroom().map_err(io_failed)?;
        log.append(&bytes).map_err(io_failed)?;
        log.flush().map_err(io_failed)?;
        log.sync().map_err(io_failed)?;
        // From here on the instance is gone; a checkpoint spares the next start to load it.
        if log.close_segment().map_err(io_failed)? {
            let start = log.segment_start_sequence();
            if let Err(error) = write_checkpoint(&self.storage, start) {
                tracing::warn!(%error, "no checkpoint was written; the daemon writes it later");
            }
        }
        log.close().map_err(io_failed)
    }
}

/// All names of a volume, directory by directory.
fn list_names(volume: &VolumeState, objects: &ObjectTable) -> Vec<NameDump> {
    let names = &volume.names;
    // Directories by the paths that lead to them.
    let mut paths: BTreeMap<Ino, String> = BTreeMap::from([(Ino::ROOT, String::new())]);
    let mut todo: Vec<Ino> = names.get(Ino::ROOT).map(|_| Ino::ROOT).into_iter().collect();
    let named_elsewhere = |ino: &Ino, inode: &Inode| {
        let parent = inode.dir().map(|dir| dir.parent);
        parent.is_some_and(|parent| *ino != Ino::ROOT && names.get(parent).is_none())
    };
    for (ino, _) in names.iter().filter(|(ino, inode)| named_elsewhere(ino, inode)) {
        paths.insert(ino, format!("inode {}", ino.0));
        todo.push(ino);
    }
    let mut found = Vec::new();
    while let Some(dir) = todo.pop() {
        let base = paths.get(&dir).cloned().unwrap_or_default();
        let Some(entries) = names.get(dir).and_then(Inode::dir) else {
            continue;
        };
        for (_, entry) in entries.after(0) {
            let path = format!("{base}/{}", String::from_utf8_lossy(&entry.name));
            let inode = names.get(entry.ino);
            if inode.is_some_and(|inode| inode.dir().is_some())
                && paths.insert(entry.ino, path.clone()).is_none()
            {
                todo.push(entry.ino);
            }
            let recorded = inode.and_then(|inode| match &inode.body {
                Body::Striped(length) => length.known.then_some(length.size),
                Body::File => Some(0),
                Body::Symlink(target) => Some(target.len() as u64),
                Body::Dir(_) | Body::Special(..) => None,
            });
            let is_whole = inode.is_some_and(|inode| matches!(inode.body, Body::File));
            let object = objects.get(&entry.ino).map(|(length, _)| *length).filter(|_| is_whole);
            found.push(NameDump {
                path,
                inode: entry.ino.0,
                kind: kind_name(entry.kind),
                mode: inode.map(|inode| format!("{:o}", inode.mode)),
                uid: inode.map(|inode| inode.uid),
                size: object.or(recorded),
            });
        }
    }
    found
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Dir => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}
