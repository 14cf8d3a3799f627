//! libnornsctl: administration of the data transfer service for C programs.
//!
//! The functions have the names, arguments and results of NORNS's library of the same name;
//! `../include/nornsctl.h` describes each of them for C programs.
#![warn(missing_docs)]
#![allow(non_snake_case, reason = "names of the C interface")]

mod control;

pub use control::*;

use forebay_norns_api::client::{self, Socket};

forebay_norns_api::export_task_calls!(
    Socket::Control,
    nornsctl_iotask_init,
    nornsctl_submit,
    nornsctl_wait,
    nornsctl_cancel,
    nornsctl_error,
    nornsctl_strerror
);

/// Reads the configuration file again at the next call.
#[unsafe(no_mangle)]
pub extern "C" fn libnornsctl_reload_config_file() {
    client::forget_configuration();
}
