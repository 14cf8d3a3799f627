//! The mounts that this process sees.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Major and minor number of the file system. The kernel uses them again.
    pub device: (u32, u32),
    /// The mount point.
    pub point: PathBuf,
    /// The type of the file system, such as `fuse.forebay`.
    pub kind: OsString,
    /// The source given to mount(2), such as a device.
    pub source: OsString,
}

/// The mounts, in the order in which they were made: of those of one mount point the last one covers
/// the others.
pub fn mount_table() -> io::Result<Vec<MountEntry>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Fields: number, parent, major:minor, root, mount point, options, any others, -, type, source.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let path = |field| OsString::from_vec(unescaped(field));
    let point = path(fields.nth(1)?).into();
    let mut file_system = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (path(file_system.next()?), path(file_system.next()?));
    Some(MountEntry { device, point, kind, source })
}

/// A field without escapes: white space and backslashes are octal numbers.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                path.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => path.push(*first),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_are_parsed() {
        let line = br"36 35 0:47 / /mnt/a\040b rw,noatime shared:1 - fuse.forebay /f/0,/f/1 rw";
        let entry = parse(line).unwrap();
        assert_eq!((entry.device, entry.point), ((0, 47), PathBuf::from("/mnt/a b")));
        assert_eq!((&*entry.kind, &*entry.source), ("fuse.forebay".as_ref(), "/f/0,/f/1".as_ref()));
        assert_eq!(parse(b""), None);
        assert!(mount_table().unwrap().iter().any(|entry| entry.kind == "proc"));
    }

    #[test]
    fn paths_are_unescaped() {
        assert_eq!(unescaped(br"/a\040b\134\011"), b"/a b\\\t");
        assert_eq!(unescaped(br"/a\9\04"), br"/a\9\04");
    }
}
