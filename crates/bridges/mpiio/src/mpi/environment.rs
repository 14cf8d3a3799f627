//! The environment of MPI in this process.

use super::{SUCCESS, functions};

/// `MPI_THREAD_MULTIPLE` of all MPI libraries.
const THREAD_MULTIPLE: i32 = 3;

/// Whether threads of this process may call MPI at the same time.
pub fn has_threads() -> bool {
    let mut provided = 0;
    // SAFETY: the result has the type of MPI.
    let code = unsafe { functions::query_thread(&mut provided) };
    code == SUCCESS && provided >= THREAD_MULTIPLE
}
