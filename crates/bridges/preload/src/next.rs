//! The functions that would be called without this library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library that has it, looked up at its first use.
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// The function of this name, which ends with a NUL.
    pub const fn new(name: &'static str) -> Next {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("a name ends with its only NUL");
        };
        Next { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address. A program that calls a function has a library with it; without it the process
    /// cannot continue.
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string; `dlsym` may be called at any time.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // SAFETY: has no requirements.
            unsafe { libc::abort() };
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Defines functions that take the place of those of the C library. The expression after `=` has the
/// result, or is `None` to call the next library. It is not evaluated for calls of this library.
macro_rules! intercept {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = $body:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the C library.")]
            ///
            /// # Safety
            /// As that of the C library.
            $(#[$attribute])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                static NEXT: $crate::next::Next =
                    $crate::next::Next::new(concat!(stringify!($name), "\0"));
                if let Some(result) = $crate::inside::enter(|| $body) {
                    return result;
                }
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: the function of this name in the C library has this type, and the arguments
                // are those of the caller.
                unsafe {
                    let next = std::mem::transmute::<*mut std::ffi::c_void, Function>(NEXT.address());
                    next($($argument),*)
                }
            }
        )*
    };
}

pub(crate) use intercept;
