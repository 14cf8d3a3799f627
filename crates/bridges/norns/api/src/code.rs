//! Result codes of the interface.

use std::ffi::CStr;

use serde::{Deserialize, Serialize};

/// A result code: 0, or a negative number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Code {
            $(#[doc = $text] pub const $name: Code = Code($number);)*

            /// The code in words; static, as `norns_strerror` returns it.
            pub fn text(self) -> &'static CStr {
                let bytes: &[u8] = match self {
                    $(Code::$name => concat!($text, "\0").as_bytes(),)*
                    Code(_) => b"Unknown code\0",
                };
                CStr::from_bytes_with_nul(bytes).unwrap_or_default()
            }
        }
    };
}

codes! {
    SUCCESS = 0, "Success";
    SNAFU = -1, "Internal error of the service";
    BADARGS = -2, "Invalid argument";
    BADREQUEST = -3, "Invalid request";
    NOMEM = -4, "Out of memory";
    TIMEOUT = -5, "Timed out";
    CONNFAILED = -6, "The service is unreachable";
    RPCSENDFAILED = -7, "The request could not be sent";
    RPCRECVFAILED = -8, "No reply was received";
    ACCEPTPAUSED = -9, "The service accepts no tasks at present";
    JOBEXISTS = -10, "The job exists";
    NOSUCHJOB = -11, "No such job";
    PROCESSEXISTS = -20, "The process exists";
    NOSUCHPROCESS = -21, "No such process";
    NAMESPACEEXISTS = -30, "The dataspace exists";
    NOSUCHNAMESPACE = -31, "No such dataspace";
    NAMESPACENOTEMPTY = -32, "The dataspace is not empty";
    TASKEXISTS = -40, "The task exists";
    NOSUCHTASK = -41, "No such task";
    TOOMANYTASKS = -42, "Too many tasks are pending";
    TASKSPENDING = -43, "Tasks are pending";
    UNDEFINED = -100, "The task has no state";
    PENDING = -101, "The task is pending";
    INPROGRESS = -102, "The task is in progress";
    FINISHED = -103, "The task is finished";
    FINISHEDWERROR = -104, "The task has failed";
    RESOURCEEXISTS = -110, "The resource exists";
    NOSUCHRESOURCE = -111, "No such resource";
    NOTSUPPORTED = -200, "Not supported";
    SYSTEMERROR = -201, "System error";
}

impl Code {
    /// Whether a task with this state is over.
    pub fn is_final(self) -> bool {
        self == Code::FINISHED || self == Code::FINISHEDWERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_its_text_and_an_unknown_one_a_general_text() {
        assert_eq!(Code::NOSUCHTASK.text(), c"No such task");
        assert_eq!(Code(-9999).text(), c"Unknown code");
        assert_eq!(Code(i32::MIN).text(), c"Unknown code");
    }
}
