//! Selection of the files whose writes are logged, and their settings.

use crate::mpi::{Handle, info};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Extended attribute of a directory: `enable` or `disable` for the files in it and below.
const POLICY: &std::ffi::CStr = c"user.forebay.log";
/// Default of the size to which writes are aligned, in bytes.
const DEFAULT_ALIGNMENT: u64 = 1 << 20;

/// The time at which the log is applied to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Before the file is closed.
    Close,
    /// By a thread, after the file is closed.
    Background,
    /// After the job, by the movers of the burst buffer.
    StageOut,
}

/// Settings of a file whose writes are logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directory of logs.
    pub directory: PathBuf,
    /// The time at which the log is applied.
    pub flush: Flush,
    /// The processes of a node share a log.
    pub per_node: bool,
    /// Most bytes of a process's log; 0 for a part of the free space.
    pub capacity: u64,
    /// Bytes to whose multiples large writes are aligned: the stripes of the file system.
    pub alignment: u64,
    /// Contiguous writes of at least so many bytes go to the file and not to the log, which would
    /// write them a second time and gain nothing; `u64::MAX` for none.
    pub direct: u64,
}

/// The settings of a file that is being opened, or `None` if it is not selected. A selected file
/// without a directory for its log is reported, and passed on.
pub fn select(path: &Path, hints: Handle) -> Option<Settings> {
    if !is_selected(path, hints) {
        return None;
    }
    let Some((directory, name)) = value(hints, "forebay_log_dir", "FOREBAY_LOG_DIR") else {
        eprintln!(
            "forebay: {} is selected for logging, but neither FOREBAY_LOG_DIR nor the hint \
             forebay_log_dir names a directory; its writes are not logged",
            path.display()
        );
        return None;
    };
    let directory = PathBuf::from(directory);
    if directory.metadata().is_ok_and(|about| !about.is_dir()) {
        eprintln!(
            "forebay: {name} is '{}', which is not a directory; the writes of {} are not logged",
            directory.display(),
            path.display()
        );
        return None;
    }
    let flush = flush(hints);
    // Applied after the close, a log hides the time of large writes, too.
    let direct = if flush == Flush::Close { forebay_mpiio_log::PAST_LOG } else { u64::MAX };
    Some(Settings {
        per_node: is_per_node(hints, &directory, flush),
        directory,
        flush,
        capacity: bytes(hints, "forebay_log_size", "FOREBAY_LOG_SIZE").unwrap_or(0),
        alignment: bytes(hints, "striping_unit", "FOREBAY_LOG_ALIGNMENT")
            .filter(|&unit| unit > 0)
            .unwrap_or(DEFAULT_ALIGNMENT),
        direct: bytes(hints, "forebay_log_direct", "FOREBAY_LOG_DIRECT").unwrap_or(direct),
    })
}

/// The value and the name of a hint, or else of a variable of the environment.
fn value<'a>(hints: Handle, hint: &'a str, variable: &'a str) -> Option<(OsString, &'a str)> {
    info::get(hints, hint)
        .map(|value| (OsString::from(value), hint))
        .or_else(|| Some((std::env::var_os(variable)?, variable)))
        .filter(|(value, _)| !value.is_empty())
}

/// The hint decides, then the environment, then the policy of the nearest directory.
fn is_selected(path: &Path, hints: Handle) -> bool {
    match info::get(hints, "forebay_log").as_deref() {
        Some("enable") => return true,
        Some("disable") => return false,
        Some(other) => eprintln!(
            "forebay: hint forebay_log is '{other}'; expected 'enable' or 'disable', ignored"
        ),
        None => {}
    }
    match std::env::var_os("FOREBAY_MPIIO") {
        Some(patterns) if matches_any(&patterns, path) => true,
        Some(_) | None => policy(path).unwrap_or(false),
    }
}

/// Whether one of the patterns, separated by colons, matches the path or, if the pattern has no
/// slash, the file's name.
fn matches_any(patterns: &OsStr, path: &Path) -> bool {
    patterns.as_bytes().split(|&byte| byte == b':').any(|pattern| {
        let subject = if pattern.contains(&b'/') {
            path.as_os_str()
        } else {
            path.file_name().unwrap_or_default()
        };
        matches(pattern, subject.as_bytes())
    })
}

/// Whether a shell pattern matches; `*` also matches slashes.
fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let (Ok(pattern), Ok(subject)) = (CString::new(pattern), CString::new(subject)) else {
        return false;
    };
    // SAFETY: both are C strings.
    unsafe { libc::fnmatch(pattern.as_ptr(), subject.as_ptr(), 0) == 0 }
}

/// The policy of the nearest directory above the path that has one.
fn policy(path: &Path) -> Option<bool> {
    for directory in path.ancestors().skip(1) {
        let name = CString::new(directory.as_os_str().as_bytes()).ok()?;
        let mut value = [0u8; 16];
        // SAFETY: names are C strings, and the value has the length that is given.
        let length = unsafe {
            libc::getxattr(name.as_ptr(), POLICY.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        match usize::try_from(length).ok().and_then(|length| value.get(..length)) {
            Some(b"enable") => return Some(true),
            Some(b"disable") => return Some(false),
            Some(_) => {
                eprintln!(
                    "forebay: attribute user.forebay.log of {} is neither 'enable' nor 'disable'",
                    directory.display()
                );
                return None;
            }
            None => {}
        }
    }
    None
}

fn flush(hints: Handle) -> Flush {
    let Some((text, name)) = value(hints, "forebay_log_flush", "FOREBAY_LOG_FLUSH") else {
        return Flush::Close;
    };
    match text.as_bytes() {
        b"close" => Flush::Close,
        b"background" => Flush::Background,
        b"stage-out" => Flush::StageOut,
        _ => {
            eprintln!(
                "forebay: {name} is '{}'; expected close, background or stage-out; \
                 the log is applied at close",
                text.display()
            );
            Flush::Close
        }
    }
}

/// Whether the processes of a node share a log. Threads that apply logs need one for each process.
fn is_per_node(hints: Handle, directory: &Path, flush: Flush) -> bool {
    let Some((text, name)) = value(hints, "forebay_log_mapping", "FOREBAY_LOG_MAPPING") else {
        return false;
    };
    let wanted = match text.as_bytes() {
        b"process" => false,
        b"node" => true,
        b"auto" => is_shared(directory),
        _ => {
            eprintln!(
                "forebay: {name} is '{}'; expected process, node or auto; each process \
                 has a log",
                text.display()
            );
            false
        }
    };
    wanted && flush != Flush::Background
}

/// Whether a directory is on a file system of several nodes, by its type: a mount of an instance, of
/// another file system in user space, or one of the known parallel and network file systems.
fn is_shared(directory: &Path) -> bool {
    /// FUSE, NFS, Lustre, GPFS, BeeGFS, Ceph, SMB 2.
    const TYPES: [i64; 7] =
        [0x6573_5546, 0x6969, 0x0bd0_0bd0, 0x4750_4653, 0x1983_0326, 0x00c3_6400, 0xfe53_4d42];
    rustix::fs::statfs(directory).is_ok_and(|found| TYPES.contains(&found.f_type))
}

/// A number of bytes.
fn bytes(hints: Handle, hint: &str, variable: &str) -> Option<u64> {
    let (text, name) = value(hints, hint, variable)?;
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    if number.is_none() {
        eprintln!("forebay: {name} is '{}'; expected a number of bytes, ignored", text.display());
    }
    number
}

impl Settings {
    /// The settings in bytes, for the other ranks.
    pub fn encode(&self) -> Vec<u8> {
        let flush = match self.flush {
            Flush::Close => 0,
            Flush::Background => 1,
            Flush::StageOut => 2,
        };
        let mut bytes = vec![flush, u8::from(self.per_node)];
        bytes.extend(self.capacity.to_le_bytes());
        bytes.extend(self.alignment.to_le_bytes());
        bytes.extend(self.direct.to_le_bytes());
        bytes.extend(self.directory.as_os_str().as_bytes());
        bytes
    }

    /// The settings that `encode` has written.
    pub fn decode(bytes: &[u8]) -> Option<Settings> {
        let ([flush, per_node], rest) = bytes.split_first_chunk()?;
        let (capacity, rest) = rest.split_first_chunk()?;
        let (alignment, rest) = rest.split_first_chunk()?;
        let (direct, directory) = rest.split_first_chunk()?;
        Some(Settings {
            flush: match flush {
                0 => Flush::Close,
                1 => Flush::Background,
                2 => Flush::StageOut,
                _ => return None,
            },
            per_node: *per_node != 0,
            capacity: u64::from_le_bytes(*capacity),
            alignment: u64::from_le_bytes(*alignment),
            direct: u64::from_le_bytes(*direct),
            directory: PathBuf::from(OsString::from_vec(directory.to_vec())),
        })
    }
}
