//! Errors of calls.

use forebay_control::controller::{Cause, Failure};
use forebay_protocol::Errno;
use forebay_protocol::staging::StagingReply;

/// `ECANCELED`, which [`Errno`] does not name: the stage was cancelled.
pub(super) const ECANCELED: Errno = Errno(125);
/// `ENOTCONN`, which [`Errno`] does not name: the job is not running.
pub(super) const ENOTCONN: Errno = Errno(107);

/// A call that failed.
pub(crate) struct Refused(pub Errno, pub String);

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        let errno = match failure.cause {
            Cause::Denied => Errno::EACCES,
            Cause::NotFound => Errno::ENOENT,
            Cause::Exists => Errno::EEXIST,
            Cause::Busy => Errno::EBUSY,
            Cause::Full => Errno::ENOSPC,
            Cause::Invalid => Errno::EINVAL,
            Cause::TimedOut => Errno::ETIMEDOUT,
            Cause::Failed => Errno::EIO,
        };
        Refused(errno, failure.reason)
    }
}

impl From<Refused> for StagingReply {
    fn from(Refused(errno, reason): Refused) -> StagingReply {
        StagingReply::Refused(errno.0, reason)
    }
}

pub(super) fn invalid_argument<T>(reason: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(Errno::EINVAL, reason.into()))
}
