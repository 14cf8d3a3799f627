//! Functions and objects of the MPI library, found by name in the running process.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A function of the MPI library, looked up at its first use.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// The symbol of this name, which ends with a NUL.
    pub const fn new(name: &'static str) -> Symbol {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("a name ends with its only NUL");
        };
        Symbol { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address, or `None` if the MPI library does not have it.
    pub fn find(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return Some(known);
        }
        let found = find(self.name)?;
        self.address.store(found, Ordering::Relaxed);
        Some(found)
    }

    /// Its address. Without a function that a program calls the process cannot continue.
    pub fn address(&self) -> *mut c_void {
        self.find().unwrap_or_else(|| {
            eprintln!(
                "forebay: the MPI library has no function {}; it must be loaded as a shared library",
                self.name.to_string_lossy()
            );
            // SAFETY: has no requirements.
            unsafe { libc::abort() }
        })
    }
}

/// An intercepted function: its namesake in the MPI library, and how often it was called.
pub struct Intercepted {
    name: &'static str,
    real: Symbol,
    calls: AtomicU64,
}

impl Intercepted {
    /// A function called `name`, whose PMPI name in the MPI library is `real`, with a NUL.
    pub const fn new(name: &'static str, real: &'static str) -> Intercepted {
        Intercepted { name, real: Symbol::new(real), calls: AtomicU64::new(0) }
    }

    /// Counts a call.
    pub fn count(&'static self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            CALLED.lock().push(self);
        }
    }

    /// The address of the function in the MPI library.
    pub fn real(&self) -> *mut c_void {
        self.real.address()
    }
}

static CALLED: parking_lot::Mutex<Vec<&'static Intercepted>> = parking_lot::Mutex::new(Vec::new());

/// The names of the functions that were called in this process, and the number of calls, by name.
pub fn counts() -> Vec<(&'static str, u64)> {
    let mut counts: Vec<(&'static str, u64)> =
        CALLED.lock().iter().map(|call| (call.name, call.calls.load(Ordering::Relaxed))).collect();
    counts.sort_unstable();
    counts
}

/// The address of a function in the libraries after this one or, if the MPI library was loaded
/// without making its symbols global, in that library.
fn find(name: &CStr) -> Option<*mut c_void> {
    find_from(libc::RTLD_NEXT, name)
}

/// The address of an object of the MPI library. A program that is not position-independent has its
/// own copy, which the library uses, too.
pub fn find_object(name: &CStr) -> Option<*mut c_void> {
    find_from(libc::RTLD_DEFAULT, name)
}

fn find_from(scope: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; `dlsym` may be called at any time.
    let found = unsafe { libc::dlsym(scope, name.as_ptr()) };
    if !found.is_null() {
        return Some(found);
    }
    let library = local_library()?;
    // SAFETY: the handle is that of an open library, which is never closed.
    let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The handle of the MPI library among the loaded ones, if it is there.
fn local_library() -> Option<usize> {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    if let Some(&known) = LIBRARY.get() {
        return Some(known);
    }
    let mut path: Option<CString> = None;
    // SAFETY: the callback has the type that is required, and `path` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(is_mpi), (&raw mut path).cast()) };
    // SAFETY: the path is a C string; a library that is loaded is not initialized again.
    let handle = unsafe { libc::dlopen(path?.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!handle.is_null()).then(|| *LIBRARY.get_or_init(|| handle as usize))
}

/// Keeps the path of an object that is the MPI library, and ends the iteration with it.
unsafe extern "C" fn is_mpi(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description with a C string as its name.
    let path = unsafe {
        let name = (*info).dlpi_name;
        if name.is_null() {
            return 0;
        }
        CStr::from_ptr(name)
    };
    let bytes = path.to_bytes();
    let file = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or(bytes);
    if file.starts_with(b"libmpi.so") || file.starts_with(b"libmpich.so") {
        // SAFETY: `found` is the `Option<CString>` of `local_library`.
        unsafe { *found.cast::<Option<CString>>() = Some(path.to_owned()) };
        return 1;
    }
    0
}
