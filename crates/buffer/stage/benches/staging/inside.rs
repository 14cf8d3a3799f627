//! What the instance's side does alone: its client library, with as many threads as a mover has.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use forebay_client::Fs;
use forebay_protocol::message::{MAX_INLINE_FILE_BYTES, NewInode, OpenMode, SetAttr, SetTime};
use forebay_protocol::{Errno, Ino, Timestamp};
use rustix::process::{getegid, geteuid};

use crate::floor::{all, blocks};
use crate::trees::{Part, Shape};

/// The files of a tree in an instance.
pub struct Files<'f> {
    fs: &'f Fs,
    inos: HashMap<PathBuf, Ino>,
}

/// Is it a file by itself that goes with one request?
fn is_whole(part: &Part) -> bool {
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
    }
}

/// Directories of an instance, by their paths in the tree.
struct Directories(HashMap<PathBuf, Ino>);

impl Directories {
    /// Where something is, and its name there.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Ino, &'p [u8])> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = self.0.get(parent).ok_or(io::ErrorKind::NotFound)?;
        Ok((*parent, path.file_name().unwrap_or_default().as_bytes()))
    }
}

impl Files<'_> {
    /// Write a tree of this shape, and put it on stable storage.
    pub fn write<'f>(
        fs: &'f Fs,
        root: &Path,
        shape: &Shape,
        threads: usize,
    ) -> io::Result<Files<'f>> {
        let mut directories = Directories(HashMap::new());
        for directory in &shape.directories {
            let made = fs.mkdir_all(&root.join(directory), 0o755).map_err(told)?;
            directories.0.insert(directory.clone(), made.ino);
        }
        let inos = Mutex::new(HashMap::new());
        let note = |part: &Part, ino| {
            let mut inos = inos.lock().unwrap_or_else(PoisonError::into_inner);
            inos.insert(part.path.clone(), ino);
        };
        let mode = OpenMode { write: true, ..OpenMode::default() };
        let mut large = HashMap::new();
        for part in shape.parts.iter().filter(|part| !is_whole(part)) {
            if !large.contains_key(&part.path) {
                let (parent, name) = directories.place(&part.path)?;
                let opened = fs.create(parent, name, 0o644, true, mode).map_err(told)?;
                fs.set_attr(opened.attr.ino, None, attributes()).map_err(told)?;
                note(part, opened.attr.ino);
                large.insert(part.path.clone(), opened.file);
            }
        }
        all(&shape.parts, threads, |part, block| {
            if let Some(file) = large.get(&part.path) {
                return blocks(part).try_for_each(|(at, length)| {
                    file.write_all_at(&block[..length], at).map_err(told)
                });
            }
            let length = usize::try_from(part.to).unwrap_or(block.len());
            let data = block[..length].to_vec();
            let place = directories.place(&part.path)?;
            note(part, fs.put_file(place, attributes(), data).map_err(told)?.ino);
            Ok(())
        })?;
        let inos = inos.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (path, goal) in &shape.links {
            let (parent, name) = directories.place(path)?;
            let link = NewInode::Symlink(goal.as_os_str().as_bytes().to_vec());
            fs.make_inode(parent, name, link, 0o777).map_err(told)?;
        }
        for (path, first) in &shape.names {
            let (parent, name) = directories.place(path)?;
            let first = inos.get(first).ok_or(io::ErrorKind::NotFound)?;
            fs.link(*first, parent, name).map_err(told)?;
        }
        for file in large.values() {
            file.fsync(false).map_err(told)?;
        }
        drop(large);
        fs.sync().map_err(told)?;
        Ok(Files { fs, inos })
    }

    /// Read all that is in the files.
    pub fn read(&self, shape: &Shape, threads: usize) -> io::Result<()> {
        let mode = OpenMode { read: true, ..OpenMode::default() };
        all(&shape.parts, threads, |part, block| {
            let ino = *self.inos.get(&part.path).ok_or(io::ErrorKind::NotFound)?;
            if is_whole(part) {
                self.fs.fetch_file(ino).map_err(told)?;
                return Ok(());
            }
            let opened = self.fs.open(ino, mode).map_err(told)?;
            for (at, length) in blocks(part) {
                let read = opened.file.read_at(&mut block[..length], at);
                if read.map_err(told)? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(())
        })
    }
}

fn told(errno: Errno) -> io::Error {
    io::Error::other(errno)
}
