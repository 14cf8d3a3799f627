//! Paths inside an instance: neither `..` nor a symbolic link leads out.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::sync::Arc;

use forebay_protocol::{Attr, FileKind};
use rustix::io::Errno;

use super::instance::{Namespace, errno};
use super::{DirHandle, FileHandle};

/// Symbolic links followed before a path is taken to lead in circles.
const MAX_LINKS: u32 = 40;

/// What stands at a path.
pub(crate) enum Found {
    Folder(Box<dyn DirHandle>),
    Body(Box<dyn FileHandle>),
}

/// Opens what `path` leads to, following symbolic links as long as they stay inside. `XDEV`: one
/// does not.
pub(crate) fn open_within(space: &Arc<Namespace>, path: &Path) -> Result<Found, Errno> {
    let found = walk(space, path)?;
    match found.kind {
        FileKind::Dir => Ok(Found::Folder(space.folder(found.ino))),
        _ => Ok(Found::Body(space.body(found.ino)?)),
    }
}

/// A part of a path that is still to be gone.
enum Step {
    Up,
    Into(OsString),
}

/// The steps of a path, the last one first.
fn steps(path: &Path) -> Result<Vec<Step>, Errno> {
    let mut steps = Vec::new();
    for component in path.components().rev() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => steps.push(Step::Up),
            Component::Normal(name) => steps.push(Step::Into(name.to_owned())),
            Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    Ok(steps)
}

fn walk(space: &Namespace, path: &Path) -> Result<Attr, Errno> {
    let fs = space.fs();
    let mut above: Vec<Attr> = Vec::new();
    let mut here = fs.get_attr(space.root()).map_err(errno)?;
    let mut ahead: VecDeque<Step> = steps(path)?.into_iter().rev().collect();
    let mut links = 0;
    while let Some(step) = ahead.pop_front() {
        if here.kind != FileKind::Dir {
            return Err(Errno::NOTDIR);
        }
        let name = match step {
            Step::Up => {
                here = above.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            Step::Into(name) => name,
        };
        let found = fs.lookup(here.ino, name.as_bytes()).map_err(errno)?;
        if found.kind != FileKind::Symlink {
            above.push(here);
            here = found;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let goal = OsString::from_vec(fs.read_link(found.ino).map_err(errno)?);
        for step in steps(Path::new(&goal))? {
            ahead.push_front(step);
        }
    }
    Ok(here)
}

/// Opens the directory at `path`, making it and those above it if need be, and says whether it
/// was made. No symbolic link is followed: `LOOP`. `XDEV`: the path leads out.
pub(crate) fn make_within(
    space: &Arc<Namespace>,
    path: &Path,
) -> Result<(Box<dyn DirHandle>, bool), Errno> {
    let mut here = space.folder(space.root());
    let mut made = false;
    for component in path.components() {
        let Component::Normal(name) = component else {
            return Err(Errno::XDEV);
        };
        made = here.mkdir(name)?;
        here = here.open_dir(name)?;
    }
    Ok((here, made))
}
