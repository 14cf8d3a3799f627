//! A parallel file system on which one kind of operation waits until the test lets it go on.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay_stage::end::{Attributes, Beneath, Body, FileSystem, Folder, State};
use rustix::io::Errno;

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Writing contents.
    Write,
    /// Putting all on stable storage.
    Flush,
    /// Reading contents.
    Read,
    /// Giving files further names.
    Link,
}

/// Keeps the operations that it is closed for.
#[derive(Debug, Default)]
pub struct Gate {
    /// For what it is closed, and how many wait.
    state: Mutex<(Option<At>, u64)>,
    changed: Condvar,
}

impl Gate {
    /// Closes it for operations of one kind, or opens it.
    pub fn close(&self, at: Option<At>) {
        *self.state.lock().unwrap() = (at, 0);
        self.changed.notify_all();
    }

    /// Waits until an operation waits.
    pub fn wait(&self) {
        let state = self.state.lock().unwrap();
        let limit = Duration::from_secs(30);
        let none = |(_, waiting): &mut (Option<At>, u64)| *waiting == 0;
        let (state, _) = self.changed.wait_timeout_while(state, limit, none).unwrap();
        assert!(state.1 > 0, "nothing came to the gate");
    }

    fn pass(&self, at: At) {
        let mut state = self.state.lock().unwrap();
        if state.0 == Some(at) {
            state.1 += 1;
            self.changed.notify_all();
        }
        let _state = self
            .changed
            .wait_while(state, |(closed, _)| *closed == Some(at))
            .unwrap();
    }
}

/// The file system below a directory, behind a gate.
pub fn gated(directory: &Path, gate: &Arc<Gate>) -> Arc<dyn FileSystem> {
    Arc::new(Gated {
        inner: Beneath::open(&[directory.to_owned()], None),
        gate: gate.clone(),
    })
}

struct Gated<T> {
    inner: T,
    gate: Arc<Gate>,
}

impl<T> fmt::Debug for Gated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gated")
    }
}

impl<T> Gated<T> {
    fn folder(&self, inner: Box<dyn Folder>) -> Box<dyn Folder> {
        let gate = self.gate.clone();
        Box::new(Gated { inner, gate })
    }

    fn body(&self, inner: Box<dyn Body>) -> Box<dyn Body> {
        let gate = self.gate.clone();
        Box::new(Gated { inner, gate })
    }
}

impl FileSystem for Gated<Arc<dyn FileSystem>> {
    fn open_folder(&self, path: &Path) -> Result<Box<dyn Folder>, Errno> {
        Ok(self.folder(self.inner.open_folder(path)?))
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn Body>, Errno> {
        Ok(self.body(self.inner.open_file(path)?))
    }
}

impl<T: Attributes + ?Sized> Attributes for Gated<Box<T>> {
    fn state(&self) -> Result<State, Errno> {
        self.inner.state()
    }

    fn take_on(
        &self,
        state: &State,
        attributes: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Result<(), String>, Errno> {
        self.inner.take_on(state, attributes)
    }

    fn attribute_names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        self.inner.attribute_names()
    }

    fn attribute(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.inner.attribute(name)
    }

    fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.inner.set_attribute(name, value)
    }
}

impl Folder for Gated<Box<dyn Folder>> {
    fn again(&self) -> Result<Box<dyn Folder>, Errno> {
        Ok(self.folder(self.inner.again()?))
    }

    fn entries(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<State, Errno>) -> bool,
    ) -> Result<(), Errno> {
        self.inner.entries(take)
    }

    fn look(&self, name: &OsStr) -> Result<State, Errno> {
        self.inner.look(name)
    }

    fn folder(&self, name: &OsStr) -> Result<Box<dyn Folder>, Errno> {
        let inner = self.inner.folder(name)?;
        Ok(Gated::folder(self, inner))
    }

    fn make(&self, name: &OsStr) -> Result<bool, Errno> {
        self.inner.make(name)
    }

    fn open(&self, name: &OsStr, seen: Option<&State>) -> Result<Box<dyn Body>, Errno> {
        Ok(self.body(self.inner.open(name, seen)?))
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn Body>, Errno> {
        Ok(self.body(self.inner.create(name, keep)?))
    }

    fn goal(&self, name: &OsStr, seen: &State) -> Result<OsString, Errno> {
        self.inner.goal(name, seen)
    }

    fn point(&self, name: &OsStr, goal: &OsStr, state: &State) -> Result<(), Errno> {
        self.inner.point(name, goal, state)
    }

    fn link(&self, name: &OsStr, folder: &dyn Folder, of: &OsStr) -> Result<(), Errno> {
        self.gate.pass(At::Link);
        self.inner.link(name, folder, of)
    }

    fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.inner.rename(from, to)
    }

    fn flush(&self) -> Result<(), Errno> {
        self.gate.pass(At::Flush);
        self.inner.flush()
    }

    fn device(&self) -> Result<u64, Errno> {
        self.inner.device()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

impl Body for Gated<Box<dyn Body>> {
    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.gate.pass(At::Read);
        self.inner.read(into, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        self.gate.pass(At::Write);
        self.inner.write(data, offset)
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        self.inner.seek(offset, hole)
    }

    fn resize(&self, size: u64) -> Result<(), Errno> {
        self.inner.resize(size)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn promise(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.inner.promise(offset, length)
    }

    fn flush(&self) -> Result<(), Errno> {
        self.inner.flush()
    }

    fn must_flush(&self) -> bool {
        self.inner.must_flush()
    }
}
