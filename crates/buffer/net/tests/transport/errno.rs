//! The error numbers of the protocol are those of Linux.

use forebay_protocol::Errno;

#[test]
fn error_numbers_equal_those_of_libc() {
    macro_rules! compare {
        ($($name:ident)*) => { $(assert_eq!(Errno::$name.0, libc::$name, stringify!($name));)* };
    }
    compare!(EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EBUSY EEXIST EXDEV ENODEV
        ENOTDIR EISDIR EINVAL ENFILE EMFILE ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK ERANGE EDEADLK
        ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW EOPNOTSUPP ECONNRESET
        ENOTCONN ESHUTDOWN ETIMEDOUT ESTALE EDQUOT ENOKEY EKEYREJECTED);
}
