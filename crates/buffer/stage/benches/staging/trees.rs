//! Trees of files: creating, describing and comparing them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::Outcome;

/// Bytes of a part of a large file.
const PART: u64 = 64 << 20;

/// A part of a file.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its path in the tree.
    pub path: PathBuf,
    pub from: u64,
    pub to: u64,
}

/// The contents of a tree.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// A directory precedes its subdirectories.
    pub directories: Vec<PathBuf>,
    pub parts: Vec<Part>,
    /// Symbolic links with their targets.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Hard links with the first names of their files.
    pub hard_links: Vec<(PathBuf, PathBuf)>,
    pub files: u64,
    pub bytes: u64,
}

/// Pseudo-random bytes.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(88_172_645_463_325_252 ^ seed)
    }

    pub fn fill(&mut self, block: &mut [u8]) {
        for word in block.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

/// Creates files of 1 GiB.
pub fn create_large_files(directory: &Path, gibibytes: u64) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut noise = Noise::new(0);
    let mut block = vec![0u8; 1 << 20];
    for index in 0..gibibytes {
        let mut file = File::create(directory.join(format!("large{index}")))?;
        for _ in 0..1024 {
            noise.fill(&mut block);
            file.write_all(&block)?;
        }
    }
    Ok(())
}

/// Creates small files, a thousand per directory. One in twenty is a symbolic link, one a hard link.
pub fn create_small_files(directory: &Path, files: u64) -> io::Result<()> {
    for index in 0..files {
        let home = directory.join(format!("d{}", index / 1000));
        if index % 1000 == 0 {
            fs::create_dir_all(&home)?;
        }
        let path = home.join(format!("f{index}"));
        match index % 20 {
            5 => symlink(format!("f{}", index - 1), path)?,
            6 => fs::hard_link(home.join(format!("f{}", index - 2)), path)?,
            _ => fs::write(path, format!("{index}\n").repeat((index % 700) as usize))?,
        }
    }
    Ok(())
}

/// The contents of the tree at `root`.
pub fn shape(root: &Path) -> Outcome<Shape> {
    let mut shape = Shape::default();
    let mut first: HashMap<u64, PathBuf> = HashMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let state = entry.metadata()?;
            if state.is_dir() {
                open.push(path);
            } else if state.is_symlink() {
                shape.links.push((path, fs::read_link(entry.path())?));
            } else if let Some(first) = first.get(&state.ino()) {
                shape.hard_links.push((path, first.clone()));
            } else {
                first.insert(state.ino(), path.clone());
                shape.files += 1;
                shape.bytes += state.len();
                for part in 0..state.len().div_ceil(PART).max(1) {
                    let from = part * PART;
                    let to = (from + PART).min(state.len());
                    let path = path.clone();
                    shape.parts.push(Part { path, from, to });
                }
            }
        }
        shape.directories.push(directory);
    }
    Ok(shape)
}

impl Shape {
    /// Number of files and links.
    pub fn entries(&self) -> u64 {
        self.files + (self.links.len() + self.hard_links.len()) as u64
    }
}

/// Compares two trees: types, contents, permissions, owners, times and hard links. Returns the number of
/// entries.
pub fn compare(a: &Path, b: &Path) -> Outcome<u64> {
    let mut open = vec![(a.to_owned(), b.to_owned())];
    let mut names: HashMap<u64, u64> = HashMap::new();
    let mut compared = 0;
    while let Some((a, b)) = open.pop() {
        let (is, was) = (fs::symlink_metadata(&b)?, fs::symlink_metadata(&a)?);
        let about = |m: &fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
        let same = if was.is_symlink() {
            fs::read_link(&a)? == fs::read_link(&b)?
        } else if was.is_dir() {
            for entry in fs::read_dir(&a)? {
                let name = entry?.file_name();
                open.push((a.join(&name), b.join(&name)));
            }
            about(&is) == about(&was) && fs::read_dir(&a)?.count() == fs::read_dir(&b)?.count()
        } else {
            let one_file = *names.entry(was.ino()).or_insert(is.ino()) == is.ino();
            let linked = one_file && is.nlink() == was.nlink();
            linked && about(&is) == about(&was) && fs::read(&a)? == fs::read(&b)?
        };
        if !same {
            return Err(format!("{} differs from {}", b.display(), a.display()).into());
        }
        compared += 1;
    }
    Ok(compared)
}
