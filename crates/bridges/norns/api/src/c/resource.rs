//! Initialization of resources, and their translation.

use std::ffi::{c_char, c_void};
use std::ptr;

use super::{
    LOCAL, MemoryRegion, POSIX_PATH, PROCESS_MEMORY, PosixPath, REMOTE, Resource, ResourceData,
    SHARED, bytes, text,
};
use crate::code::Code;
use crate::message;

impl Resource {
    /// `NORNS_MEMORY_REGION`
    pub fn memory(addr: *mut c_void, size: usize) -> Resource {
        let data = ResourceData { r_buffer: MemoryRegion { b_addr: addr, b_size: size } };
        Resource { r_flags: PROCESS_MEMORY, data }
    }

    /// `NORNS_LOCAL_PATH`
    pub fn local(nsid: *const c_char, path: *const c_char) -> Resource {
        Resource::path(LOCAL, nsid, ptr::null(), path)
    }

    /// `NORNS_SHARED_PATH`
    pub fn shared(nsid: *const c_char, path: *const c_char) -> Resource {
        Resource::path(SHARED, nsid, ptr::null(), path)
    }

    /// `NORNS_REMOTE_PATH`
    pub fn remote(nsid: *const c_char, host: *const c_char, path: *const c_char) -> Resource {
        Resource::path(REMOTE, nsid, host, path)
    }

    fn path(
        access: u32,
        p_nsid: *const c_char,
        p_host: *const c_char,
        p_path: *const c_char,
    ) -> Resource {
        let data = ResourceData { r_posix_path: PosixPath { p_nsid, p_host, p_path } };
        Resource { r_flags: POSIX_PATH | access, data }
    }

    /// The memory region, if the resource is one.
    pub(super) fn region(&self) -> Option<MemoryRegion> {
        if self.r_flags & PROCESS_MEMORY == 0 {
            return None;
        }
        // SAFETY: the flags say which part of the union was initialized.
        Some(unsafe { self.data.r_buffer })
    }

    /// The resource in a message.
    ///
    /// # Safety
    /// The texts of a path are null, or strings that end with a null byte.
    pub(super) unsafe fn to_message(self) -> Result<message::Resource, Code> {
        if let Some(region) = self.region() {
            return Ok(message::Resource::Memory { size: region.b_size as u64 });
        }
        if self.r_flags & POSIX_PATH == 0 {
            return Err(Code::BADARGS);
        }
        // SAFETY: the flags say that the resource is a path.
        let posix = unsafe { self.data.r_posix_path };
        // SAFETY: the caller guarantees it.
        let (nsid, path) = unsafe { (text(posix.p_nsid)?, bytes(posix.p_path)?) };
        let path = message::DataPath { nsid, path };
        if self.r_flags & REMOTE == 0 {
            return Ok(message::Resource::Path(path));
        }
        // SAFETY: the caller guarantees it.
        let host = unsafe { text(posix.p_host) }?;
        Ok(message::Resource::Remote { host, path })
    }
}
