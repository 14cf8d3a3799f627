//! The job record: times, processes, command line, mount table.

use crate::error::LogError;
use crate::fields::{Fields, text};
use crate::header::Header;
use crate::region::Region;
use std::io::{Read, Seek};

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its type, as `lustre`.
    pub kind: String,
    /// Where it is mounted.
    pub path: String,
}

/// The run of the program.
#[derive(Clone, Debug)]
pub struct Job {
    /// User id.
    pub uid: i64,
    /// Id in the batch system.
    pub job_id: i64,
    /// Processes.
    pub processes: u32,
    /// Start, seconds since 1970.
    pub start: f64,
    /// End, seconds since 1970.
    pub end: f64,
    /// Duration, seconds, as Darshan computes it: logs before format 3.41 have whole seconds, and one is added.
    pub run_seconds: f64,
    /// Lines `KEY=VALUE`, as `lib_ver=3.4.4`.
    pub metadata: Vec<(String, String)>,
    /// The command line, as far as Darshan kept it.
    pub command: String,
    /// Mounted file systems; those with long paths first.
    pub mounts: Vec<Mount>,
}

/// Bytes of the record with command line and mount table: Darshan writes no more.
const MOST_BYTES: usize = 4096;
const METADATA_BYTES: usize = 1024;

impl Job {
    /// The file system of a path: the mount with the longest path above it.
    pub fn mount_of(&self, path: &str) -> Option<&Mount> {
        self.mounts.iter().find(|mount| {
            let below = path.strip_prefix(mount.path.as_str());
            mount.path == "/"
                || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        })
    }

    pub(crate) fn read<R: Read + Seek>(
        region: &mut Region<'_, R>,
        header: &Header,
    ) -> Result<Job, LogError> {
        let mut record = vec![0; MOST_BYTES];
        let length = region.read(&mut record)?;
        let has_nanoseconds = header.version.minor >= 41;
        let needed = if has_nanoseconds { 7 } else { 5 } * size_of::<i64>() + METADATA_BYTES;
        if length < needed {
            return Err(region.error(format!("{length} bytes; at least {needed} are needed")));
        }
        let mut fields = Fields::new(&record[..length], header.order);
        let uid = fields.i64();
        let mut time = || {
            let seconds = fields.i64();
            let nanoseconds = if has_nanoseconds { fields.i64() } else { 0 };
            seconds as f64 + nanoseconds as f64 / 1e9
        };
        let (start, end) = (time(), time());
        let (processes, job_id) = (fields.i64(), fields.i64());
        let processes =
            u32::try_from(processes).ok().filter(|count| *count > 0).ok_or_else(|| {
                region.error(format!("{processes} processes; 1 to {} are possible", u32::MAX))
            })?;
        let metadata = text(fields.take(METADATA_BYTES));
        let trailing = text(fields.take(MOST_BYTES));
        let mut lines = trailing.split('\n');
        let command = lines.next().unwrap_or_default().trim_end().to_owned();
        let mut mounts: Vec<Mount> = lines.filter_map(mount).collect();
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        Ok(Job {
            uid,
            job_id,
            processes,
            start,
            end,
            run_seconds: end - start + if has_nanoseconds { 0.0 } else { 1.0 },
            metadata: metadata.lines().filter_map(key_and_value).collect(),
            command,
            mounts,
        })
    }

    /// A value of the metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

fn key_and_value(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once('=')?;
    Some((key.to_owned(), value.to_owned()))
}

/// A line of the mount table: type and path. The last line may be cut off.
fn mount(line: &str) -> Option<Mount> {
    let mut words = line.split_whitespace();
    let (kind, path) = (words.next()?, words.next()?);
    path.starts_with('/').then(|| Mount { kind: kind.to_owned(), path: path.to_owned() })
}
