//! The open files whose writes are logged, by the program's handles.

mod views;

pub use views::{get_byte_offset, get_view, set_view};

use crate::file::alias::Alias;
use crate::file::background::{self, ClosedFile};
use crate::file::transfer::{Completion, Direction, Request};
use crate::file::{FileId, LoggedFile, file_id, lifetime};
use crate::inside;
use crate::mpi::communicator::Communicator;
use crate::mpi::{
    Handle, MODE_RDONLY, MODE_SEQUENTIAL, MODE_WRONLY, MpiError, SEEK_SET, SUCCESS, environment,
    functions, info, library, status,
};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// A logged file, and what is known of it while a call on it waits.
struct Slot {
    path: PathBuf,
    id: FileId,
    /// Number of files that this process opened before and logs: the same order on all processes that
    /// opened the same files together.
    opening: u64,
    mode: c_int,
    comm: Communicator,
    /// `None` when it was closed and a second handle remains.
    file: Mutex<Option<LoggedFile>>,
}

type Shared = Arc<Slot>;

impl Slot {
    fn new(logged: LoggedFile) -> Slot {
        Slot {
            path: logged.path().to_owned(),
            id: logged.id(),
            opening: logged.opening(),
            mode: logged.mode(),
            comm: logged.communicator(),
            file: Mutex::new(Some(logged)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<LoggedFile>> {
        self.file.lock()
    }

    /// Whether it was opened by this path, or is the file that the path names now. Processes whose
    /// nodes cache names may see different files, but the same path.
    fn is_named(&self, path: &Path, id: Option<FileId>) -> bool {
        self.path == path || id == Some(self.id)
    }

    /// Waits until all processes have called a collective function that waits for messages. Otherwise
    /// it would wait with the file locked, while another thread of this process uses the file, which
    /// the processes that it waits for may be waiting for.
    fn meet(&self) {
        if environment::has_threads() {
            // An error is that of the function itself, too.
            let _ = self.comm.barrier();
        }
    }
}

/// The file of a handle.
#[derive(Clone)]
enum Open {
    /// A logged file.
    File(Shared),
    /// A second handle of a logged file.
    Alias(Arc<Mutex<Alias>>, Shared),
}

static FILES: LazyLock<RwLock<HashMap<Handle, Open>>> = LazyLock::new(RwLock::default);

/// Files whose handles are left to the MPI library, by handle: their names and, if known, what they are.
type PassedFiles = HashMap<Handle, (PathBuf, Option<FileId>)>;

static PASSED: LazyLock<RwLock<PassedFiles>> = LazyLock::new(RwLock::default);

/// The names of file systems that MPI libraries accept before a path, with a colon.
const PREFIXES: [&[u8]; 10] =
    [b"ufs", b"nfs", b"lustre", b"gpfs", b"panfs", b"pvfs2", b"xfs", b"testfs", b"daos", b"beegfs"];

fn find(file: Handle) -> Option<Open> {
    FILES.read().get(&file).cloned()
}

/// The result of MPI for one of this library; an error goes to the file's error handler first, which
/// may use the file: nothing is locked.
fn code(file: Handle, result: Result<(), MpiError>) -> c_int {
    match result {
        Ok(()) => SUCCESS,
        Err(MpiError(code)) => {
            // SAFETY: the handle is that of an open file.
            inside::leave(|| unsafe { functions::file_call_errhandler(file, code) });
            code
        }
    }
}

/// Carries out a call on a logged file: `body`, or `alone` for a handle that this process has alone.
fn on_file(
    file: Handle,
    body: impl FnOnce(&mut LoggedFile) -> Result<(), MpiError>,
    alone: impl FnOnce(&mut LoggedFile) -> Result<(), MpiError>,
) -> Option<c_int> {
    let result = match find(file)? {
        Open::File(shared) => body(shared.lock().as_mut()?),
        Open::Alias(alias, shared) => {
            let mut alias = alias.lock();
            match shared.lock().as_mut() {
                Some(logged) => alias.on(logged, alone),
                None => return pass_on(file, &alias),
            }
        }
    };
    Some(code(file, result))
}

/// As [`on_file`], for a collective call that waits for messages.
fn on_file_together(
    file: Handle,
    body: impl FnOnce(&mut LoggedFile) -> Result<(), MpiError>,
    alone: impl FnOnce(&mut LoggedFile) -> Result<(), MpiError>,
) -> Option<c_int> {
    if let Open::File(shared) = find(file)? {
        shared.meet();
    }
    on_file(file, body, alone)
}

/// Leaves a handle to the MPI library, because the logged file was closed.
fn pass_on(file: Handle, alias: &Alias) -> Option<c_int> {
    FILES.write().remove(&file);
    // SAFETY: the handle is that of an open file.
    unsafe { functions::file_seek(file, alias.position() as i64, SEEK_SET) };
    None
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
    let before = first_handle(&path, comm, mode);
    // SAFETY: the arguments are those of the caller.
    let opened = unsafe { functions::file_open(comm, name, mode, hints, file) };
    if opened != SUCCESS {
        return Some(opened);
    }
    // SAFETY: both libraries have pointers as handles of files, and the file was opened.
    let handle = unsafe { *file.cast::<Handle>() };
    let twice = before.is_some() || is_passed(&path);
    let result = match before {
        Some(First::Alone(shared)) => open_alias(handle, shared, mode),
        Some(First::Together) | None if mode & (MODE_RDONLY | MODE_SEQUENTIAL) != 0 => Ok(()),
        Some(First::Together) | None => attach(handle, comm, &path, mode, hints, twice),
    };
    if find(handle).is_none() {
        let id = file_id(&path);
        PASSED.write().insert(handle, (path, id));
    }
    Some(match result {
        Ok(()) => SUCCESS,
        Err(error) => code(handle, Err(error)),
    })
}

/// Whether the program has a handle of a file that is left to the MPI library.
fn is_passed(path: &Path) -> bool {
    let id = file_id(path);
    PASSED.read().values().any(|(of, of_id)| of == path || (id.is_some() && id == *of_id))
}

fn attach(
    handle: Handle,
    comm: Handle,
    path: &Path,
    mode: c_int,
    hints: Handle,
    twice: bool,
) -> Result<(), MpiError> {
    if let Some(mut logged) = LoggedFile::attach(handle, comm, path, mode, hints)? {
        if twice {
            logged.set_opened_twice();
        }
        FILES.write().insert(handle, Open::File(Arc::new(Slot::new(logged))));
    }
    Ok(())
}

fn open_alias(handle: Handle, shared: Shared, mode: c_int) -> Result<(), MpiError> {
    let alias = match shared.lock().as_ref() {
        Some(logged) => Alias::new(handle, logged, mode)?,
        None => return Ok(()),
    };
    FILES.write().insert(handle, Open::Alias(Arc::new(Mutex::new(alias)), shared));
    Ok(())
}

/// A handle of a file that is being opened again.
enum First {
    /// This process opens the file alone, and has it open with others.
    Alone(Shared),
    /// Other cases.
    Together,
}

/// A handle of a file that is open already. What was logged through handles of the same processes is
/// applied, and what was synced through those of others, because it must be visible.
fn first_handle(path: &Path, comm: Handle, mode: c_int) -> Option<First> {
    let id = file_id(path);
    let all: Vec<(Handle, Open)> =
        FILES.read().iter().map(|(handle, open)| (*handle, open.clone())).collect();
    let mut same = Vec::new();
    for (handle, open) in all {
        // Other files are not locked: their calls may wait for this process.
        let Open::File(shared) = open else { continue };
        if shared.is_named(path, id) {
            same.push((handle, shared));
        }
    }
    // All processes apply the logs in the order in which they have opened the files.
    same.sort_by_key(|(_, shared)| shared.opening);
    let is_alone =
        mode & MODE_SEQUENTIAL == 0 && Communicator::of(comm).is_ok_and(|comm| comm.size == 1);
    let mut first = None;
    for (handle, shared) in same {
        let mut guard = shared.lock();
        let Some(file) = guard.as_mut() else { continue };
        let applied = if file.has_processes_of(comm) {
            file.flush_for_second_handle()
        } else if is_alone && Some(shared.id) == id {
            drop(guard);
            return Some(First::Alone(shared));
        } else {
            file.settle_for_second_handle()
        };
        // An error handler of the program may use the file.
        drop(guard);
        code(handle, applied);
        first = Some(First::Together);
    }
    first
}

/// `MPI_File_close`.
///
/// # Safety
/// `file` points to a handle.
pub unsafe fn close(file: *mut c_void) -> Option<c_int> {
    // SAFETY: both libraries have pointers as handles of files.
    let handle = unsafe { *file.cast::<Handle>() };
    PASSED.write().remove(&handle);
    // The guard must not live through the collective calls of a close.
    let open = FILES.write().remove(&handle)?;
    let result = match open {
        Open::File(shared) => {
            let logged = shared.lock().take();
            logged.map_or(Ok(None), |logged| logged.close(has_alias(&shared)))
        }
        Open::Alias(alias, _) => {
            close_alias(&alias);
            Ok(None)
        }
    };
    // SAFETY: as above.
    let closed = unsafe { functions::file_close(file) };
    // Not before: processes that are still in the library's close, which is collective, would share
    // their cores and the server of the file with the threads of the others.
    let result = result.and_then(|remains| remains.map_or(Ok(()), ClosedFile::start));
    Some(match result {
        Ok(()) => closed,
        Err(MpiError(code)) => code,
    })
}

/// Whether this process has a second handle of a logged file.
fn has_alias(shared: &Shared) -> bool {
    let files = FILES.read();
    files.values().any(|open| matches!(open, Open::Alias(_, of) if Arc::ptr_eq(of, shared)))
}

/// `MPI_File_delete`: a log that is being applied must be complete, so that it does not come after.
/// Logs that were left for later belong to the file, and are removed with it.
///
/// # Safety
/// `name` is a C string.
pub unsafe fn delete(name: *const c_char, hints: Handle) -> Option<c_int> {
    // SAFETY: by the contract of this function.
    let path = unsafe { absolute(name) }?;
    background::wait_for(&path);
    let removed = lifetime::last_name_of(&path);
    // SAFETY: the arguments are those of the caller.
    let deleted = unsafe { functions::file_delete(name, hints) };
    if let (SUCCESS, Some(removed)) = (deleted, removed) {
        lifetime::discard_logs_of(&path, removed, hints);
    }
    Some(deleted)
}

/// `MPI_File_set_size`.
pub fn set_size(file: Handle, size: i64) -> Option<c_int> {
    let size = u64::try_from(size).ok()?;
    on_file_together(file, |file| file.set_size(size), |file| file.set_size_alone(size))
}

/// `MPI_File_preallocate`.
pub fn preallocate(file: Handle, size: i64) -> Option<c_int> {
    let size = u64::try_from(size).ok()?;
    on_file_together(file, |file| file.preallocate(size), |file| file.preallocate_alone(size))
}

/// `MPI_File_get_size`.
///
/// # Safety
/// `size` points to a number.
pub unsafe fn get_size(file: Handle, size: *mut i64) -> Option<c_int> {
    let query = |file: &mut LoggedFile| {
        // SAFETY: by the contract of this function.
        unsafe { *size = file.visible_size()? };
        Ok(())
    };
    on_file(file, query, query)
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
    on_file_together(
        file,
        |file| file.set_atomicity(flag != 0),
        |file| file.set_atomicity_alone(flag != 0),
    )
}

/// `MPI_File_sync`.
pub fn sync(file: Handle) -> Option<c_int> {
    let sync = |file: &mut LoggedFile| {
        file.sync()?;
        file.sync_through()
    };
    on_file_together(file, sync, LoggedFile::sync_alone)
}

/// `MPI_File_seek`.
pub fn seek(file: Handle, offset: i64, whence: c_int) -> Option<c_int> {
    let seek = |file: &mut LoggedFile| file.seek(offset, whence);
    on_file(file, seek, seek)
}

/// `MPI_File_seek_shared`.
pub fn seek_shared(file: Handle, offset: i64, whence: c_int) -> Option<c_int> {
    on_file(
        file,
        |file| file.seek_shared(offset, whence),
        |file| file.seek_shared_alone(offset, whence),
    )
}

/// `MPI_File_get_position`.
///
/// # Safety
/// `offset` points to a number.
pub unsafe fn get_position(file: Handle, offset: *mut i64) -> Option<c_int> {
    let query = |file: &mut LoggedFile| {
        // SAFETY: by the contract of this function.
        unsafe { *offset = file.position() as i64 };
        Ok(())
    };
    on_file(file, query, query)
}

/// `MPI_File_get_position_shared`.
///
/// # Safety
/// `offset` points to a number.
pub unsafe fn get_position_shared(file: Handle, offset: *mut i64) -> Option<c_int> {
    let query = |file: &mut LoggedFile| {
        // SAFETY: by the contract of this function.
        unsafe { *offset = file.position_shared()? as i64 };
        Ok(())
    };
    on_file(file, query, query)
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
    // The MPI library reports what the access mode forbids.
    let open = find(file)?;
    let mode = match &open {
        Open::File(shared) => shared.mode,
        Open::Alias(alias, _) => alias.lock().mode(),
    };
    let forbidden = match request.direction {
        Direction::Read => MODE_WRONLY,
        Direction::Write => MODE_RDONLY,
    };
    if mode & forbidden != 0 {
        return None;
    }
    if let Open::File(shared) = &open
        && environment::has_threads()
        && shared.lock().as_ref()?.waits_for_others(request, &completion)
    {
        shared.meet();
    }
    let finish = |logged: &mut LoggedFile, bytes: u64| -> Result<(), MpiError> {
        match completion {
            // SAFETY: by the contract of this function.
            Completion::Status(to) => unsafe { status::set(to, bytes) },
            // SAFETY: as above.
            Completion::Request(to) => unsafe { status::completed_request(to, bytes)? },
            Completion::Split => logged.begin_split(bytes),
        }
        Ok(())
    };
    on_file(
        file,
        |logged| {
            // SAFETY: as above.
            let bytes = unsafe { logged.transfer(request, buffer, count, datatype, &completion)? };
            finish(logged, bytes)
        },
        |logged| {
            // SAFETY: as above.
            let bytes =
                unsafe { logged.transfer_alone(request, buffer, count, datatype, &completion)? };
            finish(logged, bytes)
        },
    )
}

/// The second call of a split collective operation.
///
/// # Safety
/// `to` is `MPI_STATUS_IGNORE` or points to a status.
pub unsafe fn end_transfer(file: Handle, to: *mut c_void) -> Option<c_int> {
    let end = |file: &mut LoggedFile| {
        let bytes = file.end_split()?;
        // SAFETY: by the contract of this function.
        unsafe { status::set(to, bytes) };
        Ok(())
    };
    on_file(file, end, end)
}

/// Closes the files that the program has not closed before the end of MPI, as all processes do, in the
/// order in which they were opened: their logs would stay otherwise, without what is in memory.
pub fn close_all() {
    let mut open: Vec<(Handle, Shared)> = Vec::new();
    for (handle, file) in FILES.write().drain() {
        match file {
            Open::File(shared) => open.push((handle, shared)),
            Open::Alias(alias, _) => close_alias(&alias),
        }
    }
    open.sort_by_key(|(_, shared)| shared.opening);
    for (handle, shared) in open {
        if shared.comm.rank == 0 {
            let path = shared.path.display();
            eprintln!("forebay: {path} is not closed before MPI_Finalize; its log is ended there");
        }
        let logged = shared.lock().take();
        let remains = logged.map_or(Ok(None), |logged| logged.close(false));
        let ended = remains.and_then(|remains| remains.map_or(Ok(()), ClosedFile::start));
        // The failure was reported, and the log stays.
        code(handle, ended);
    }
}

fn close_alias(alias: &Mutex<Alias>) {
    alias.lock().close();
}
