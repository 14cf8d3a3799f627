//! The open files whose writes are logged, by the program's handles.

use crate::file::transfer::{Completion, Direction, Request};
use crate::file::view::FileView;
use crate::file::{LoggedFile, background};
use crate::mpi::{
    Handle, MODE_RDONLY, MODE_SEQUENTIAL, MpiError, SUCCESS, functions, info, library, status,
};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

type Shared = Arc<Mutex<LoggedFile>>;

static FILES: LazyLock<RwLock<HashMap<Handle, Shared>>> = LazyLock::new(RwLock::default);

/// The names of file systems that MPI libraries accept before a path, with a colon.
const PREFIXES: [&[u8]; 10] =
    [b"ufs", b"nfs", b"lustre", b"gpfs", b"panfs", b"pvfs2", b"xfs", b"testfs", b"daos", b"beegfs"];

fn find(file: Handle) -> Option<Shared> {
    FILES.read().get(&file).cloned()
}

/// The result of MPI for one of this library; an error goes to the file's error handler first.
fn code(file: Handle, result: Result<(), MpiError>) -> c_int {
    match result {
        Ok(()) => SUCCESS,
        Err(MpiError(code)) => {
            // SAFETY: the handle is that of an open file.
            unsafe { functions::file_call_errhandler(file, code) };
            code
        }
    }
}

/// Carries out a call on a logged file.
fn on_file(
    file: Handle,
    body: impl FnOnce(&mut LoggedFile) -> Result<(), MpiError>,
) -> Option<c_int> {
    let shared = find(file)?;
    let result = body(&mut shared.lock());
    Some(code(file, result))
}

/// The absolute path of a file name of MPI.
///
/// # Safety
/// `name` is a C string.
unsafe fn absolute(name: *const c_char) -> Option<PathBuf> {
    // SAFETY: by the contract of this function.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let path = match name.iter().position(|&byte| byte == b':') {
        Some(at) if PREFIXES.contains(&&name[..at]) => &name[at + 1..],
        Some(_) | None => name,
    };
    std::path::absolute(OsStr::from_bytes(path)).ok()
}

/// `MPI_File_open`.
///
/// # Safety
/// The arguments are those of MPI.
pub unsafe fn open(
    comm: Handle,
    name: *const c_char,
    mode: c_int,
    hints: Handle,
    file: *mut c_void,
) -> Option<c_int> {
    // SAFETY: by the contract of this function.
    let path = unsafe { absolute(name) }?;
    background::wait_for(&path);
    let before = second_handles(&path, comm);
    if mode & (MODE_RDONLY | MODE_SEQUENTIAL) != 0 {
        return None;
    }
    // SAFETY: the arguments are those of the caller.
    let opened = unsafe { functions::file_open(comm, name, mode, hints, file) };
    if opened != SUCCESS {
        return Some(opened);
    }
    // SAFETY: both libraries have pointers as handles of files, and the file was opened.
    let handle = unsafe { *file.cast::<Handle>() };
    match LoggedFile::attach(handle, comm, &path, mode, hints) {
        Ok(Some(mut logged)) => {
            if before {
                logged.set_opened_twice();
            }
            FILES.write().insert(handle, Arc::new(Mutex::new(logged)));
            Some(SUCCESS)
        }
        Ok(None) => Some(SUCCESS),
        Err(error) => Some(code(handle, Err(error))),
    }
}

/// Whether the program has a file open already. What was logged through handles of the same
/// processes is applied, because it must be visible after a sync.
fn second_handles(path: &std::path::Path, comm: Handle) -> bool {
    let all: Vec<(Handle, Shared)> =
        FILES.read().iter().map(|(handle, file)| (*handle, file.clone())).collect();
    let mut found = false;
    for (handle, file) in all {
        let mut file = file.lock();
        if file.path() != path {
            continue;
        }
        found = true;
        if file.has_processes_of(comm) {
            code(handle, file.flush_for_second_handle());
        } else {
            file.set_opened_twice();
        }
    }
    found
}

/// `MPI_File_close`.
///
/// # Safety
/// `file` points to a handle.
pub unsafe fn close(file: *mut c_void) -> Option<c_int> {
    // SAFETY: both libraries have pointers as handles of files.
    let handle = unsafe { *file.cast::<Handle>() };
    let shared = FILES.write().remove(&handle)?;
    let result = match Arc::try_unwrap(shared) {
        Ok(logged) => logged.into_inner().close(),
        // Another thread still uses the file, which MPI forbids.
        Err(_) => Err(MpiError(library().error_argument)),
    };
    // SAFETY: as above.
    let closed = unsafe { functions::file_close(file) };
    Some(match result {
        Ok(()) => closed,
        Err(MpiError(code)) => code,
    })
}

/// `MPI_File_delete`: a log that is being applied must be complete, so that it does not come after.
///
/// # Safety
/// `name` is a C string.
pub unsafe fn delete(name: *const c_char) -> Option<c_int> {
    // SAFETY: by the contract of this function.
    background::wait_for(&unsafe { absolute(name) }?);
    None
}

/// `MPI_File_set_view`.
///
/// # Safety
/// The arguments are those of MPI.
pub unsafe fn set_view(
    file: Handle,
    displacement: i64,
    etype: Handle,
    filetype: Handle,
    representation: *const c_char,
    hints: Handle,
) -> Option<c_int> {
    let shared = find(file)?;
    // SAFETY: the arguments are those of the caller.
    let set = unsafe {
        functions::file_set_view(file, displacement, etype, filetype, representation, hints)
    };
    if set != SUCCESS {
        return Some(set);
    }
    // SAFETY: the representation is a C string, which the MPI library has accepted.
    let native =
        unsafe { CStr::from_ptr(representation) }.to_bytes().eq_ignore_ascii_case(b"native");
    let result = FileView::decode(displacement, etype, filetype, native)
        .and_then(|view| shared.lock().set_view(view));
    Some(code(file, result))
}

/// `MPI_File_set_size`.
pub fn set_size(file: Handle, size: i64) -> Option<c_int> {
    let size = u64::try_from(size).ok()?;
    on_file(file, |file| file.set_size(size))
}

/// `MPI_File_preallocate`.
pub fn preallocate(file: Handle, size: i64) -> Option<c_int> {
    let size = u64::try_from(size).ok()?;
    on_file(file, |file| file.preallocate(size))
}

/// `MPI_File_get_size`.
///
/// # Safety
/// `size` points to a number.
pub unsafe fn get_size(file: Handle, size: *mut i64) -> Option<c_int> {
    on_file(file, |file| {
        // SAFETY: by the contract of this function.
        unsafe { *size = file.visible_size()? };
        Ok(())
    })
}

/// `MPI_File_get_info`: the hints of the MPI library, and that the file is logged.
///
/// # Safety
/// `result` points to a handle.
pub unsafe fn get_info(file: Handle, result: *mut c_void) -> Option<c_int> {
    find(file)?;
    // SAFETY: the arguments are those of the caller.
    let code = unsafe { functions::file_get_info(file, result) };
    if code == SUCCESS {
        let mut word = [0u8; 8];
        let width = library().flavour.width();
        // SAFETY: the MPI library has stored a handle of this width.
        unsafe { std::ptr::copy_nonoverlapping(result.cast::<u8>(), word.as_mut_ptr(), width) };
        info::set(u64::from_le_bytes(word) as Handle, "forebay_log", "enable");
    }
    Some(code)
}

/// `MPI_File_set_atomicity`.
pub fn set_atomicity(file: Handle, flag: c_int) -> Option<c_int> {
    on_file(file, |file| file.set_atomicity(flag != 0))
}

/// `MPI_File_sync`.
pub fn sync(file: Handle) -> Option<c_int> {
    on_file(file, |file| {
        file.sync()?;
        file.sync_through()
    })
}

/// `MPI_File_seek`.
pub fn seek(file: Handle, offset: i64, whence: c_int) -> Option<c_int> {
    on_file(file, |file| file.seek(offset, whence))
}

/// `MPI_File_seek_shared`.
pub fn seek_shared(file: Handle, offset: i64, whence: c_int) -> Option<c_int> {
    on_file(file, |file| file.seek_shared(offset, whence))
}

/// `MPI_File_get_position`.
///
/// # Safety
/// `offset` points to a number.
pub unsafe fn get_position(file: Handle, offset: *mut i64) -> Option<c_int> {
    on_file(file, |file| {
        // SAFETY: by the contract of this function.
        unsafe { *offset = file.position() as i64 };
        Ok(())
    })
}

/// `MPI_File_get_position_shared`.
///
/// # Safety
/// `offset` points to a number.
pub unsafe fn get_position_shared(file: Handle, offset: *mut i64) -> Option<c_int> {
    on_file(file, |file| {
        // SAFETY: by the contract of this function.
        unsafe { *offset = file.position_shared()? as i64 };
        Ok(())
    })
}

/// A read or write. Those that the file's access mode forbids are left to the MPI library.
///
/// # Safety
/// The arguments are those of MPI.
pub unsafe fn transfer(
    file: Handle,
    request: &Request,
    buffer: *mut c_void,
    count: i64,
    datatype: Handle,
    completion: Completion,
) -> Option<c_int> {
    let shared = find(file)?;
    let mut logged = shared.lock();
    if request.direction == Direction::Read && logged.is_write_only() {
        return None;
    }
    // SAFETY: by the contract of this function.
    let result = unsafe { logged.transfer(request, buffer, count, datatype, &completion) };
    let result = result.and_then(|bytes| {
        match completion {
            // SAFETY: by the contract of this function.
            Completion::Status(to) => unsafe { status::set(to, bytes) },
            // SAFETY: as above.
            Completion::Request(to) => unsafe { status::completed_request(to, bytes)? },
            Completion::Split => logged.begin_split(bytes),
        }
        Ok(())
    });
    drop(logged);
    Some(code(file, result))
}

/// The second call of a split collective operation.
///
/// # Safety
/// `to` is `MPI_STATUS_IGNORE` or points to a status.
pub unsafe fn end_transfer(file: Handle, to: *mut c_void) -> Option<c_int> {
    on_file(file, |file| {
        let bytes = file.end_split()?;
        // SAFETY: by the contract of this function.
        unsafe { status::set(to, bytes) };
        Ok(())
    })
}
