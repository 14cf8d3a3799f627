//! The file format of checkpoints, written and read in pieces, so that only the state itself is in
//! memory.
//!
//! ```text
//! checkpoint: magic [u8; 8] | crc32c of the rest u32 | epoch, session_count, sessions | volume…
//! ```
//! The parts are encoded one after the other; the number of volumes is part of the first. A file of an
//! earlier format ([`MAGIC_V1`]) has the encoding of the whole state after the checksum.

use crate::log::RecoveryError;
use crate::namespace::Namespace;
use crate::state::{NodeState, Prepared, SessionState, VolumeState};
use crate::storage::Storage;
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::peer::TxId;
use forebay_protocol::{InstanceId, NodeIndex, SessionId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, BufWriter, Read, Write};

const MAGIC: &[u8; 8] = b"FBAYCKP2";
const MAGIC_V1: &[u8; 8] = b"FBAYCKP1";
const HEADER_BYTES: u64 = 12;
/// Bytes per read and write.
const CHUNK_BYTES: usize = 256 << 10;
/// Longest string in a checkpoint: the address of a node.
const MAX_STRING_BYTES: usize = 16 << 10;

/// The part of a state before its volumes.
#[derive(Serialize, Deserialize)]
struct Head<S> {
    epoch: u64,
    session_count: u64,
    sessions: S,
    volume_count: u64,
}

/// A state in a file of the first format.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct FirstNodeState {
    epoch: u64,
    volumes: BTreeMap<InstanceId, FirstVolumeState>,
    sessions: BTreeMap<SessionId, SessionState>,
    session_count: u64,
}

/// A volume in a file of the first format, whose daemons granted no read leases.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct FirstVolumeState {
    spec: InstanceSpec,
    names: Namespace,
    prepared: BTreeMap<TxId, Prepared>,
    decided: BTreeMap<TxId, BTreeSet<NodeIndex>>,
}

impl From<FirstNodeState> for NodeState {
    fn from(first: FirstNodeState) -> NodeState {
        let FirstNodeState { epoch, volumes, sessions, session_count } = first;
        let volumes = volumes.into_iter().map(|(id, volume)| {
            let FirstVolumeState { spec, names, prepared, decided } = volume;
            (id, VolumeState { spec, names, prepared, decided, leased: false })
        });
        NodeState { epoch, volumes: volumes.collect(), sessions, session_count }
    }
}

/// A file that is written from the beginning to the end.
struct FileWriter<'a, S> {
    storage: &'a S,
    name: &'a str,
    offset: u64,
    sum: u32,
}

impl<S: Storage> Write for FileWriter<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.storage.write_file(self.name, self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is read from the beginning to the end.
struct FileReader<'a, S> {
    storage: &'a S,
    name: &'a str,
    offset: u64,
}

impl<S: Storage> Read for FileReader<'_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.storage.read_file_at(self.name, self.offset, bytes)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Counts the bytes of an encoding.
struct ByteCount(u64);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encode(state: &NodeState, mut to: impl Write) -> io::Result<()> {
    let cannot = |error| io::Error::other(format!("cannot encode checkpoint: {error}"));
    let head = Head {
        epoch: state.epoch,
        session_count: state.session_count,
        sessions: &state.sessions,
        volume_count: state.volumes.len() as u64,
    };
    postcard::to_io(&head, &mut to).map_err(cannot)?;
    for volume in state.volumes.values() {
        postcard::to_io(volume, &mut to).map_err(cannot)?;
    }
    to.flush()
}

/// Length of a state's checkpoint, in bytes.
pub fn checkpoint_bytes(state: &NodeState) -> io::Result<u64> {
    let mut count = BufWriter::new(ByteCount(HEADER_BYTES));
    encode(state, &mut count)?;
    Ok(count.get_ref().0)
}

/// Write the checkpoint of a state into an empty file.
pub fn write_state<S: Storage>(storage: &S, name: &str, state: &NodeState) -> io::Result<()> {
    let file = FileWriter { storage, name, offset: HEADER_BYTES, sum: 0 };
    let mut buffered = BufWriter::with_capacity(CHUNK_BYTES, file);
    encode(state, &mut buffered)?;
    let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..].copy_from_slice(&file.sum.to_le_bytes());
    storage.write_file(name, 0, &header)
}

/// Read the state of a checkpoint. `DamagedCheckpoint` if the file is not as it was written.
pub fn read_state<S: Storage>(storage: &S, name: &str) -> Result<NodeState, RecoveryError> {
    let damaged = || RecoveryError::DamagedCheckpoint(name.to_owned());
    let is_first_format = check_file(storage, name)?.ok_or_else(damaged)?;
    let file = FileReader { storage, name, offset: HEADER_BYTES };
    let mut from = BufReader::with_capacity(CHUNK_BYTES, file);
    if is_first_format {
        let first: Option<FirstNodeState> = decode(&mut from);
        return first.map(NodeState::from).ok_or_else(damaged);
    }
    let head: Head<BTreeMap<SessionId, SessionState>> = decode(&mut from).ok_or_else(damaged)?;
    let Head { epoch, session_count, sessions, volume_count } = head;
    let mut volumes = BTreeMap::new();
    for _ in 0..volume_count {
        let volume: VolumeState = decode(&mut from).ok_or_else(damaged)?;
        volumes.insert(volume.spec.id, volume);
    }
    if volumes.len() as u64 != volume_count {
        return Err(damaged());
    }
    Ok(NodeState { epoch, volumes, sessions, session_count })
}

/// Whether a checkpoint is as it was written.
pub fn is_whole<S: Storage>(storage: &S, name: &str) -> io::Result<bool> {
    Ok(check_file(storage, name)?.is_some())
}

fn decode<T: DeserializeOwned>(from: &mut impl Read) -> Option<T> {
    let mut scratch = vec![0; MAX_STRING_BYTES];
    let (value, _) = postcard::from_io((from, &mut scratch)).ok()?;
    Some(value)
}

/// Compare a file with its checksum. `None`: it is damaged; otherwise whether it has the first format.
fn check_file<S: Storage>(storage: &S, name: &str) -> io::Result<Option<bool>> {
    let mut file = FileReader { storage, name, offset: 0 };
    let mut header = [0; HEADER_BYTES as usize];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut sum = 0;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            count => sum = crc32c::crc32c_append(sum, &chunk[..count]),
        }
    }
    let is_first_format = header.starts_with(MAGIC_V1);
    let is_known = is_first_format || header.starts_with(MAGIC);
    let is_whole = is_known && header[8..] == sum.to_le_bytes();
    Ok(is_whole.then_some(is_first_format))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::DiskStorage;
    use forebay_protocol::Timestamp;
    use forebay_protocol::placement::Placement;

    fn sample() -> NodeState {
        let mut state = NodeState { epoch: 3, session_count: 9, ..NodeState::default() };
        for id in [InstanceId(4), InstanceId(7)] {
            let placement = Placement::single_node();
            let spec =
                InstanceSpec { id, uid: 1, gid: 2, mode: 0o755, capacity: 5, inodes: 6, placement };
            state.volumes.insert(id, VolumeState::new(spec, Timestamp::default()));
        }
        state
    }

    #[test]
    fn checkpoint_is_read_as_it_was_written_and_damage_is_detected() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(home.path()).unwrap();
        let state = sample();
        let bytes = checkpoint_bytes(&state).unwrap();
        storage.create_file("c", bytes).unwrap();
        write_state(&storage, "c", &state).unwrap();
        assert_eq!(storage.read_file("c").unwrap().len() as u64, bytes);
        assert_eq!(read_state(&storage, "c").unwrap(), state);
        for at in 0..bytes {
            let mut byte = [0];
            storage.read_file_at("c", at, &mut byte).unwrap();
            storage.write_file("c", at, &[byte[0] ^ 0x10]).unwrap();
            let read = read_state(&storage, "c");
            assert!(matches!(read, Err(RecoveryError::DamagedCheckpoint(_))), "byte {at}");
            storage.write_file("c", at, &byte).unwrap();
        }
    }

    #[test]
    fn checkpoint_of_the_first_format_is_read() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(home.path()).unwrap();
        let NodeState { epoch, volumes, sessions, session_count } = sample();
        let volumes = volumes.into_iter().map(|(id, volume)| {
            let VolumeState { spec, names, prepared, decided, leased: _ } = volume;
            (id, FirstVolumeState { spec, names, prepared, decided })
        });
        let first = FirstNodeState { epoch, volumes: volumes.collect(), sessions, session_count };
        let body = postcard::to_stdvec(&first).unwrap();
        let mut bytes = MAGIC_V1.to_vec();
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        storage.create_file("c", 0).unwrap();
        storage.write_file("c", 0, &bytes).unwrap();
        assert_eq!(read_state(&storage, "c").unwrap(), sample());
    }
}
