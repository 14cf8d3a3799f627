//! libnorns: asynchronous data transfers for C programs.
//!
//! The functions have the names, arguments and results of NORNS's library of the same name;
//! `../include/norns.h` describes each of them for C programs.
#![warn(missing_docs)]
#![allow(non_snake_case, reason = "names of the C interface")]

use forebay_norns_api::client::{self, Socket};

forebay_norns_api::export_task_calls!(
    Socket::Global,
    norns_iotask_init,
    norns_submit,
    norns_wait,
    norns_cancel,
    norns_error,
    norns_strerror
);

/// Reads the configuration file again at the next call.
#[unsafe(no_mangle)]
pub extern "C" fn libnorns_reload_config_file() {
    client::forget_configuration();
}
