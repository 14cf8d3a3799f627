//! Paths inside an instance: neither `..` nor a symbolic link leads out of it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::sync::Arc;

use forebay_protocol::{Attr, FileKind};
use rustix::io::Errno;

use super::instance::Namespace;
use super::{DirHandle, FileHandle};

/// Maximum number of symbolic links in a path.
const MAX_LINKS: u32 = 40;

/// File or directory to which a path leads.
pub(crate) enum Found {
    Dir(Box<dyn DirHandle>),
    File(Box<dyn FileHandle>),
}

/// Opens what `path` leads to, following symbolic links. `XDEV` if it leads out of the namespace.
pub(crate) fn open_within(namespace: &Arc<Namespace>, path: &Path) -> Result<Found, Errno> {
    let found = resolve(namespace, path)?;
    if found.kind == FileKind::Dir {
        Ok(Found::Dir(namespace.dir_handle(found.ino)))
    } else {
        Ok(Found::File(namespace.open_file(found.ino)?))
    }
}

/// A component of a path that is not resolved yet.
enum Step {
    Parent,
    Child(OsString),
}

/// The components of a path, the last one first.
fn reversed_steps(path: &Path) -> Result<Vec<Step>, Errno> {
    let mut steps = Vec::new();
    for component in path.components().rev() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => steps.push(Step::Parent),
            Component::Normal(name) => steps.push(Step::Child(name.to_owned())),
            Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    Ok(steps)
}

fn resolve(namespace: &Namespace, path: &Path) -> Result<Attr, Errno> {
    let fs = namespace.fs();
    let mut parents: Vec<Attr> = Vec::new();
    let mut here = fs.get_attr(namespace.root())?;
    let mut ahead: VecDeque<Step> = reversed_steps(path)?.into_iter().rev().collect();
    let mut links = 0;
    while let Some(step) = ahead.pop_front() {
        if here.kind != FileKind::Dir {
            return Err(Errno::NOTDIR);
        }
        let name = match step {
            Step::Parent => {
                here = parents.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            Step::Child(name) => name,
        };
        let found = fs.lookup(here.ino, name.as_bytes())?;
        if found.kind != FileKind::Symlink {
            parents.push(here);
            here = found;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let target = OsString::from_vec(fs.read_link(found.ino)?);
        for step in reversed_steps(Path::new(&target))? {
            ahead.push_front(step);
        }
    }
    Ok(here)
}

/// Opens the directory at `path`, creating it and its parents if necessary, and returns whether it
/// was created. `LOOP` at a symbolic link, `XDEV` if the path leads out of the namespace.
pub(crate) fn mkdir_within(
    namespace: &Arc<Namespace>,
    path: &Path,
) -> Result<(Box<dyn DirHandle>, bool), Errno> {
    let mut here = namespace.dir_handle(namespace.root());
    let mut created = false;
    for component in path.components() {
        let Component::Normal(name) = component else {
            return Err(Errno::XDEV);
        };
        created = here.mkdir(name)?;
        here = here.open_dir(name)?;
    }
    Ok((here, created))
}
