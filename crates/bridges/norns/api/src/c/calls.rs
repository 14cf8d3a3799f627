//! The calls that libnorns and libnornsctl both have.

/// The calls for tasks and resources that both libraries have, exported to C under their names in each,
/// over one of the sockets.
#[macro_export]
macro_rules! export_task_calls {
    (
        $socket:expr, $init:ident, $submit:ident, $wait:ident, $cancel:ident, $error:ident,
        $strerror:ident
    ) => {
        /// A region of this process's memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn NORNS_MEMORY_REGION(
            addr: *mut std::ffi::c_void,
            size: usize,
        ) -> $crate::c::Resource {
            $crate::c::Resource::memory(addr, size)
        }

        /// A path in a dataspace of this node.
        #[unsafe(no_mangle)]
        pub extern "C" fn NORNS_LOCAL_PATH(
            nsid: *const std::ffi::c_char,
            path: *const std::ffi::c_char,
        ) -> $crate::c::Resource {
            $crate::c::Resource::local(nsid, path)
        }

        /// A path in a dataspace of another node.
        #[unsafe(no_mangle)]
        pub extern "C" fn NORNS_REMOTE_PATH(
            nsid: *const std::ffi::c_char,
            host: *const std::ffi::c_char,
            path: *const std::ffi::c_char,
        ) -> $crate::c::Resource {
            $crate::c::Resource::remote(nsid, host, path)
        }

        /// A path in a dataspace that all nodes share.
        #[unsafe(no_mangle)]
        pub extern "C" fn NORNS_SHARED_PATH(
            nsid: *const std::ffi::c_char,
            path: *const std::ffi::c_char,
        ) -> $crate::c::Resource {
            $crate::c::Resource::shared(nsid, path)
        }

        /// Initializes a task.
        ///
        /// # Safety
        /// Each pointer is null or valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(
            task: *mut $crate::c::Task,
            operation: std::ffi::c_uint,
            source: *mut $crate::c::Resource,
            destination: *mut $crate::c::Resource,
        ) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::c::init_task(task, operation, source, destination) }
        }

        /// Submits a task.
        ///
        /// # Safety
        /// `task` is null or valid, with readable texts and regions.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $submit(task: *mut $crate::c::Task) -> i32 {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::c::submit($socket, task) }
        }

        /// Waits until a task is over.
        ///
        /// # Safety
        /// Each pointer is null or valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait(
            task: *mut $crate::c::Task,
            timeout: *const $crate::c::timespec,
        ) -> i32 {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::c::wait($socket, task, timeout) }
        }

        /// Cancels a task.
        ///
        /// # Safety
        /// `task` is null or valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $cancel(task: *mut $crate::c::Task) -> i32 {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::c::cancel($socket, task) }
        }

        /// Reports the state of a task.
        ///
        /// # Safety
        /// Each pointer is null or valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $error(
            task: *mut $crate::c::Task,
            stats: *mut $crate::c::Stat,
        ) -> i32 {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::c::error($socket, task, stats) }
        }

        /// The text of a code.
        #[unsafe(no_mangle)]
        pub extern "C" fn $strerror(code: i32) -> *mut std::ffi::c_char {
            $crate::c::strerror(code)
        }
    };
}
