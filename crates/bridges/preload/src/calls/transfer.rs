//! Reading, writing, and the position.

use crate::errno::{result, set};
use crate::file::OpenFile;
use crate::next::intercept;
use crate::table;
use forebay_protocol::Errno;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// The most bytes that one call of Linux transfers.
const MAX_TRANSFER: usize = 0x7fff_f000;
/// The most buffers of a vectored call.
const MAX_BUFFERS: c_int = libc::UIO_MAXIOV;

/// The buffer of a read.
///
/// # Safety
/// As of the caller of `read`: `size` bytes at `buffer` are valid for writes.
unsafe fn writable<'a>(buffer: *mut c_void, size: size_t) -> &'a mut [u8] {
    if size == 0 || buffer.is_null() {
        return &mut [];
    }
    // SAFETY: see above; the program's bytes are only overwritten.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast(), size.min(MAX_TRANSFER)) }
}

/// The buffer of a write.
///
/// # Safety
/// As of the caller of `write`: `size` bytes at `buffer` are valid for reads.
unsafe fn readable<'a>(buffer: *const c_void, size: size_t) -> &'a [u8] {
    if size == 0 || buffer.is_null() {
        return &[];
    }
    // SAFETY: see above.
    unsafe { std::slice::from_raw_parts(buffer.cast(), size.min(MAX_TRANSFER)) }
}

/// The buffers of a vectored call, at most [`MAX_TRANSFER`] bytes.
///
/// # Safety
/// `vector` points to `count` descriptions of buffers that are valid for reads.
unsafe fn buffers<'a>(vector: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    if !(0..=MAX_BUFFERS).contains(&count) {
        return Err(Errno::EINVAL);
    }
    if count == 0 || vector.is_null() {
        return Ok(&[]);
    }
    // SAFETY: see above.
    let buffers = unsafe { std::slice::from_raw_parts(vector, count as usize) };
    let total = buffers.iter().try_fold(0usize, |sum, one| sum.checked_add(one.iov_len));
    match total {
        Some(total) if total <= MAX_TRANSFER => Ok(buffers),
        _ => Err(Errno::EINVAL),
    }
}

fn length(outcome: Result<usize, Errno>) -> ssize_t {
    result(outcome.map(|count| count as ssize_t))
}

fn at(offset: off_t) -> Result<u64, Errno> {
    u64::try_from(offset).map_err(|_| Errno::EINVAL)
}

/// The file with a descriptor, if the kernel does not have it.
fn own(fd: c_int) -> Option<std::sync::Arc<OpenFile>> {
    table::get(fd).filter(|file| !file.is_moved())
}

fn do_read(fd: c_int, buffer: *mut c_void, size: size_t) -> Option<ssize_t> {
    let file = own(fd)?;
    // SAFETY: the caller's buffer.
    let buffer = unsafe { writable(buffer, size) };
    file.read(&mut [buffer]).map(length)
}

fn do_write(fd: c_int, buffer: *const c_void, size: size_t) -> Option<ssize_t> {
    let file = own(fd)?;
    // SAFETY: the caller's buffer.
    let buffer = unsafe { readable(buffer, size) };
    file.write(&[buffer]).map(length)
}

fn do_pread(fd: c_int, buffer: *mut c_void, size: size_t, offset: off_t) -> Option<ssize_t> {
    let file = own(fd)?;
    // SAFETY: the caller's buffer.
    let buffer = unsafe { writable(buffer, size) };
    Some(length(at(offset).and_then(|offset| file.read_at(&mut [buffer], offset))))
}

fn do_pwrite(fd: c_int, buffer: *const c_void, size: size_t, offset: off_t) -> Option<ssize_t> {
    let file = own(fd)?;
    // SAFETY: the caller's buffer.
    let buffer = unsafe { readable(buffer, size) };
    Some(length(at(offset).and_then(|offset| file.write_at(&[buffer], offset))))
}

/// Transfers several buffers, at the position if there is no offset.
fn vectored(
    fd: c_int,
    (vector, count): (*const iovec, c_int),
    offset: Option<off_t>,
    transfer: impl FnOnce(&OpenFile, &[iovec], Option<u64>) -> Option<Result<usize, Errno>>,
) -> Option<ssize_t> {
    let file = own(fd)?;
    // SAFETY: the caller's buffers.
    let parts = unsafe { buffers(vector, count) };
    match parts.and_then(|parts| Ok((parts, offset.map(at).transpose()?))) {
        Ok((parts, offset)) => transfer(&file, parts, offset).map(length),
        Err(errno) => Some(length(Err(errno))),
    }
}

fn do_readv(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: Option<off_t>,
) -> Option<ssize_t> {
    vectored(fd, (vector, count), offset, |file, parts, offset| {
        // SAFETY: the caller's buffers.
        let parts = parts.iter().map(|part| unsafe { writable(part.iov_base, part.iov_len) });
        let mut parts: Vec<&mut [u8]> = parts.collect();
        match offset {
            None => file.read(&mut parts),
            Some(offset) => Some(file.read_at(&mut parts, offset)),
        }
    })
}

fn do_writev(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: Option<off_t>,
) -> Option<ssize_t> {
    vectored(fd, (vector, count), offset, |file, parts, offset| {
        // SAFETY: the caller's buffers.
        let parts = parts.iter().map(|part| unsafe { readable(part.iov_base, part.iov_len) });
        let parts: Vec<&[u8]> = parts.collect();
        match offset {
            None => file.write(&parts),
            Some(offset) => Some(file.write_at(&parts, offset)),
        }
    })
}

/// The offset of `preadv2` and `pwritev2`; an error for flags, which the kernel has to obey.
fn second_version(fd: c_int, offset: off_t, flags: c_int) -> Option<Option<off_t>> {
    if flags != 0 {
        super::kernel::hand_over(fd)?;
        return None;
    }
    Some((offset != -1).then_some(offset))
}

fn do_lseek(fd: c_int, offset: off_t, whence: c_int) -> Option<off_t> {
    let moved = own(fd)?.seek(offset, whence)?;
    Some(result(moved.map(|position| position as off_t)))
}

/// The size of a buffer as a compiler knows it; a call beyond it is an error of the program.
fn check_size(size: size_t, known: size_t) -> Option<()> {
    (size <= known).then_some(())
}

intercept! {
    fn read(fd: c_int, buffer: *mut c_void, size: size_t) -> ssize_t = do_read(fd, buffer, size);
    fn __read_chk(fd: c_int, buffer: *mut c_void, size: size_t, known: size_t) -> ssize_t =
        check_size(size, known).and_then(|()| do_read(fd, buffer, size));
    fn pread(fd: c_int, buffer: *mut c_void, size: size_t, offset: off_t) -> ssize_t =
        do_pread(fd, buffer, size, offset);
    fn pread64(fd: c_int, buffer: *mut c_void, size: size_t, offset: off_t) -> ssize_t =
        do_pread(fd, buffer, size, offset);
    fn __pread_chk(fd: c_int, buffer: *mut c_void, size: size_t, offset: off_t, known: size_t) -> ssize_t =
        check_size(size, known).and_then(|()| do_pread(fd, buffer, size, offset));
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, size: size_t, offset: off_t, known: size_t) -> ssize_t =
        check_size(size, known).and_then(|()| do_pread(fd, buffer, size, offset));
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t =
        do_readv(fd, vector, count, None);
    fn preadv(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        do_readv(fd, vector, count, Some(offset));
    fn preadv64(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        do_readv(fd, vector, count, Some(offset));
    fn preadv2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        second_version(fd, offset, flags).and_then(|offset| do_readv(fd, vector, count, offset));
    fn preadv64v2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        second_version(fd, offset, flags).and_then(|offset| do_readv(fd, vector, count, offset));
    fn write(fd: c_int, buffer: *const c_void, size: size_t) -> ssize_t =
        do_write(fd, buffer, size);
    fn pwrite(fd: c_int, buffer: *const c_void, size: size_t, offset: off_t) -> ssize_t =
        do_pwrite(fd, buffer, size, offset);
    fn pwrite64(fd: c_int, buffer: *const c_void, size: size_t, offset: off_t) -> ssize_t =
        do_pwrite(fd, buffer, size, offset);
    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t =
        do_writev(fd, vector, count, None);
    fn pwritev(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        do_writev(fd, vector, count, Some(offset));
    fn pwritev64(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        do_writev(fd, vector, count, Some(offset));
    fn pwritev2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        second_version(fd, offset, flags).and_then(|offset| do_writev(fd, vector, count, offset));
    fn pwritev64v2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        second_version(fd, offset, flags).and_then(|offset| do_writev(fd, vector, count, offset));
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = do_lseek(fd, offset, whence);
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t = do_lseek(fd, offset, whence);
    fn ftruncate(fd: c_int, length: off_t) -> c_int = do_truncate(fd, length);
    fn ftruncate64(fd: c_int, length: off_t) -> c_int = do_truncate(fd, length);
    fn fsync(fd: c_int) -> c_int = do_sync(fd, false);
    fn fdatasync(fd: c_int) -> c_int = do_sync(fd, true);
}

fn do_truncate(fd: c_int, length: off_t) -> Option<c_int> {
    let file = own(fd)?;
    Some(crate::errno::status(at(length).and_then(|length| file.truncate(length))))
}

/// Writes of this process to a file that the kernel has now are synced here, and those of the
/// kernel by the next library.
fn do_sync(fd: c_int, data_only: bool) -> Option<c_int> {
    let file = table::get(fd)?;
    match file.sync(data_only) {
        Ok(()) if file.is_moved() => None,
        Ok(()) => Some(0),
        Err(errno) => {
            set(errno);
            Some(-1)
        }
    }
}
