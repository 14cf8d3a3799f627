//! The interface of batch systems to a pool: one call for each step of a job's life.
//!
//! ```text
//! validate -> setup -> stage_in -> environment, mount -> (the job runs)
//!   -> unmount -> stage_out -> teardown
//! ```
//!
//! A batch system makes each call when the job reaches that step, and holds the job if the call
//! fails. Every call can be repeated: after a restart the batch system makes again those whose
//! result it does not know.
//!
//! [`Call`] and [`Reply`] have a JSON form, that of `forebay wlm` (`docs/batch-systems.md`). Other
//! interfaces, such as DataWarp's `dw_wlm_cli`, are adapters that make the same calls.
#![warn(missing_docs)]

mod call;
mod error;
mod json;
mod perform;
mod script;

pub use call::{Call, Reply, Staging};
pub use error::{ErrorKind, WlmError};
pub use json::{VERSION, parse_call, reply_text};
pub use perform::{Bridge, parse_access};
pub use script::{Requested, RequestedInstance, RequestedStage, ScriptReport, report_script};
