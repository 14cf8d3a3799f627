//! Views of logged files.

use super::{FILES, Open, PASSED, Slot, code, find};
use crate::file::LoggedFile;
use crate::file::alias::Alias;
use crate::file::library_view::LibraryView;
use crate::file::view::{DecodedView, FileView};
use crate::mpi::{Handle, MpiError, SUCCESS, functions};
use parking_lot::Mutex;
use std::ffi::{CStr, c_char, c_int, c_void};

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
    let open = find(file)?;
    // SAFETY: the representation is null or a C string.
    let native = !representation.is_null()
        && unsafe { CStr::from_ptr(representation) }.to_bytes().eq_ignore_ascii_case(b"native");
    if let (Open::File(shared), true) = (&open, native) {
        // Unlocked before an error handler of the program is called, which may use the file.
        let deferred = {
            let mut guard = shared.lock();
            guard.as_mut().map(|logged| logged.defer_view(displacement, etype, filetype))
        };
        match deferred {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => return Some(SUCCESS),
            Some(Err(error)) => return Some(code(file, Err(error))),
        }
    }
    // SAFETY: the arguments are those of the caller.
    let set = unsafe {
        functions::file_set_view(file, displacement, etype, filetype, representation, hints)
    };
    if set != SUCCESS {
        return Some(set);
    }
    let decoded = FileView::decode(displacement, etype, filetype, native);
    let result = match open {
        Open::File(shared) => {
            if !native {
                shared.meet();
            }
            shared.lock().as_mut().map_or(Ok(()), |logged| {
                logged.forget_deferred_view();
                logged.set_view(decoded, native)
            })
        }
        Open::Alias(alias, shared) => {
            decoded.and_then(|view| set_view_alone(file, &alias, &shared, view))
        }
    };
    Some(code(file, result))
}

/// The view of a handle that this process has alone. With another data representation than `native` it
/// is left to the MPI library.
fn set_view_alone(
    file: Handle,
    alias: &Mutex<Alias>,
    shared: &Slot,
    view: DecodedView,
) -> Result<(), MpiError> {
    let mut alias = alias.lock();
    let mut guard = shared.lock();
    let Some(logged) = guard.as_mut() else { return Ok(()) };
    if view.native {
        return alias.set_view(view);
    }
    logged.settle_for_passed_handle()?;
    FILES.write().remove(&file);
    PASSED.write().insert(file, (shared.path.clone(), Some(shared.id)));
    alias.close();
    Ok(())
}

/// A query of the view, which the MPI library answers if it knows the view.
fn on_deferred_view(
    file: Handle,
    query: impl FnOnce(&LoggedFile, &LibraryView) -> Result<(), MpiError>,
) -> Option<c_int> {
    let Open::File(shared) = find(file)? else { return None };
    let result = {
        let guard = shared.lock();
        let logged = guard.as_ref()?;
        query(logged, logged.deferred_view()?)
    };
    Some(code(file, result))
}

/// `MPI_File_get_view`.
///
/// # Safety
/// The arguments are those of MPI.
pub unsafe fn get_view(
    file: Handle,
    displacement: *mut i64,
    etype: *mut c_void,
    filetype: *mut c_void,
    representation: *mut c_char,
) -> Option<c_int> {
    on_deferred_view(file, |_, view| {
        let native = c"native";
        // SAFETY: by the contract of this function; a representation has at least this length.
        unsafe {
            view.get(displacement, etype, filetype)?;
            native.as_ptr().copy_to_nonoverlapping(representation, native.count_bytes() + 1);
        }
        Ok(())
    })
}

/// `MPI_File_get_byte_offset`.
///
/// # Safety
/// `displacement` points to a number.
pub unsafe fn get_byte_offset(file: Handle, offset: i64, displacement: *mut i64) -> Option<c_int> {
    on_deferred_view(file, |logged, _| {
        // SAFETY: by the contract of this function.
        unsafe { *displacement = logged.byte_offset(offset)? };
        Ok(())
    })
}
