//! Whether a thread is within this library: MPI calls that the MPI library makes on its behalf are
//! not intercepted.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`, unless the thread is already within the library.
pub fn enter<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    if INSIDE.replace(true) {
        return None;
    }
    let result = body();
    INSIDE.set(false);
    result
}

/// Runs a function of the program from within the library: its calls are intercepted.
pub fn leave<T>(body: impl FnOnce() -> T) -> T {
    let was_inside = INSIDE.replace(false);
    let result = body();
    INSIDE.set(was_inside);
    result
}
