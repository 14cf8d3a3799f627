//! The intercepted functions of MPI.
//!
//! Each function is exported by its name and by its PMPI name: the Fortran interfaces of Open MPI,
//! and those of tools that intercept MPI themselves, call the PMPI names, and those of MPICH both.
//! The Fortran interfaces (`mpif.h`, `mpi`, `mpi_f08`) are thereby intercepted after they have
//! translated handles, statuses and array descriptors.

pub mod environment;
pub mod files;
pub mod transfers;

/// Defines functions that take the place of those of the MPI library. The expression after `=` has
/// the result, or is `None` to call the MPI library. It is not evaluated for calls that the MPI
/// library makes during those of this library.
macro_rules! intercept {
    ($($(#[$attribute:meta])* $name:ident $profiling:ident ($($argument:ident: $type:ty),* $(,)?) = $body:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of MPI.")]
            ///
            /// # Safety
            /// As that of the MPI library.
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
                static CALL: $crate::mpi::symbols::Intercepted =
                    $crate::mpi::symbols::Intercepted::new(
                        stringify!($name),
                        concat!(stringify!($profiling), "\0"),
                    );
                CALL.count();
                if let Some(result) = $crate::inside::enter(|| $body) {
                    return result;
                }
                type Function = unsafe extern "C" fn($($type),*) -> std::ffi::c_int;
                // SAFETY: the function of this name in the MPI library has this type, and the
                // arguments are those of the caller.
                unsafe {
                    let real = std::mem::transmute::<*mut std::ffi::c_void, Function>(CALL.real());
                    real($($argument),*)
                }
            }

            #[doc = concat!("`", stringify!($profiling), "` of MPI.")]
            ///
            /// # Safety
            /// As that of the MPI library.
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiling($($argument: $type),*) -> std::ffi::c_int {
                // SAFETY: the arguments are those of the caller.
                unsafe { $name($($argument),*) }
            }
        )*
    };
}

pub(crate) use intercept;
