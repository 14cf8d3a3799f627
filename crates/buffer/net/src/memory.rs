//! The memory that a daemon keeps after use.

use std::ffi::c_int;
use std::sync::Once;

/// Size from which an allocation has a mapping of its own, which ends with it. By default the C library
/// raises this to the size of the largest mapping that was freed; buffers of megabytes then come from
/// its heaps, are cleared when they are used again, and stay in memory.
const MAPPING_BYTES: c_int = 2 << 20;
/// Unused memory at the end of a heap that is kept.
const TRIM_BYTES: c_int = 16 << 20;
/// Heaps, each used by some of the threads.
const MAX_HEAPS: c_int = 8;

/// Has this process return memory to the system that it does not use any more. Other than by the
/// allocations' speed and the memory's size it has no effect.
pub fn limit_retained_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(target_env = "gnu")]
        for (option, value) in [
            (libc::M_MMAP_THRESHOLD, MAPPING_BYTES),
            (libc::M_TRIM_THRESHOLD, TRIM_BYTES),
            (libc::M_ARENA_MAX, MAX_HEAPS),
        ] {
            // SAFETY: sets an option of the allocator; it refuses values that it does not know.
            unsafe { libc::mallopt(option, value) };
        }
    });
}
