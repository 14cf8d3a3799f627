//! The side of the instance alone: its client library, with as many threads as a mover.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use forebay_client::Fs;
use forebay_protocol::message::{MAX_INLINE_FILE_BYTES, NewInode, OpenMode, SetAttr, SetTime};
use forebay_protocol::{Errno, Ino, Timestamp};
use rustix::process::{getegid, geteuid};

use crate::floor::{blocks, for_each_part};
use crate::trees::{Part, Shape};

/// The files of a tree in an instance.
pub struct Files<'f> {
    fs: &'f Fs,
    inos: HashMap<PathBuf, Ino>,
}

/// Whether the part is a whole file that is transferred in one request.
fn is_inline_file(part: &Part) -> bool {
    part.from == 0 && part.to <= MAX_INLINE_FILE_BYTES as u64
}

fn attributes() -> SetAttr {
    let time = SetTime::At(Timestamp::default());
    SetAttr {
        mode: Some(0o644),
        uid: Some(geteuid().as_raw()),
        gid: Some(getegid().as_raw()),
        size: None,
        atime: Some(time),
        mtime: Some(time),
        clear_set_id: false,
    }
}

/// Directories of an instance by their paths in the tree.
struct Directories(HashMap<PathBuf, Ino>);

impl Directories {
    /// The directory of an entry, and its name.
    fn locate<'p>(&self, path: &'p Path) -> io::Result<(Ino, &'p [u8])> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = self.0.get(parent).ok_or(io::ErrorKind::NotFound)?;
        Ok((*parent, path.file_name().unwrap_or_default().as_bytes()))
    }
}

impl Files<'_> {
    /// Writes a tree of this shape, and syncs it.
    pub fn write<'f>(
        fs: &'f Fs,
        root: &Path,
        shape: &Shape,
        threads: usize,
    ) -> io::Result<Files<'f>> {
        let mut directories = Directories(HashMap::new());
        for directory in &shape.directories {
            let created = fs.mkdir_all(&root.join(directory), 0o755).map_err(io_error)?;
            directories.0.insert(directory.clone(), created.ino);
        }
        let inos = Mutex::new(HashMap::new());
        let record = |part: &Part, ino| {
            let mut inos = inos.lock().unwrap_or_else(PoisonError::into_inner);
            inos.insert(part.path.clone(), ino);
        };
        let mode = OpenMode { write: true, ..OpenMode::default() };
        let mut large = HashMap::new();
        for part in shape.parts.iter().filter(|part| !is_inline_file(part)) {
            if !large.contains_key(&part.path) {
                let (parent, name) = directories.locate(&part.path)?;
                let opened = fs.create(parent, name, 0o644, true, mode).map_err(io_error)?;
                fs.set_attr(opened.attr.ino, None, attributes()).map_err(io_error)?;
                record(part, opened.attr.ino);
                large.insert(part.path.clone(), opened.file);
            }
        }
        for_each_part(&shape.parts, threads, |part, block| {
            if let Some(file) = large.get(&part.path) {
                return blocks(part).try_for_each(|(at, length)| {
                    file.write_all_at(&block[..length], at).map_err(io_error)
                });
            }
            let length = usize::try_from(part.to).unwrap_or(block.len());
            let data = block[..length].to_vec();
            let entry = directories.locate(&part.path)?;
            record(part, fs.put_file(entry, attributes(), data).map_err(io_error)?.ino);
            Ok(())
        })?;
        let inos = inos.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (path, link_target) in &shape.links {
            let (parent, name) = directories.locate(path)?;
            let link = NewInode::Symlink(link_target.as_os_str().as_bytes().to_vec());
            fs.make_inode(parent, name, link, 0o777).map_err(io_error)?;
        }
        for (path, first) in &shape.hard_links {
            let (parent, name) = directories.locate(path)?;
            let first = inos.get(first).ok_or(io::ErrorKind::NotFound)?;
            fs.link(*first, parent, name).map_err(io_error)?;
        }
        for file in large.values() {
            file.fsync(false).map_err(io_error)?;
        }
        drop(large);
        fs.sync().map_err(io_error)?;
        Ok(Files { fs, inos })
    }

    /// Reads all files.
    pub fn read(&self, shape: &Shape, threads: usize) -> io::Result<()> {
        let mode = OpenMode { read: true, ..OpenMode::default() };
        for_each_part(&shape.parts, threads, |part, block| {
            let ino = *self.inos.get(&part.path).ok_or(io::ErrorKind::NotFound)?;
            if is_inline_file(part) {
                self.fs.fetch_file(ino).map_err(io_error)?;
                return Ok(());
            }
            let opened = self.fs.open(ino, mode).map_err(io_error)?;
            for (at, length) in blocks(part) {
                let read = opened.file.read_at(&mut block[..length], at);
                if read.map_err(io_error)? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(())
        })
    }
}

fn io_error(errno: Errno) -> io::Error {
    io::Error::other(errno)
}
