//! The data transfer service of NORNS.

use std::ffi::CString;
use std::io::{self, Write};
use std::sync::atomic::Ordering;

use forebay_console::log::{self, LevelFilter};
use forebay_console::{Failure, print_stderr, print_stdout};
use forebay_norns::Service;
use forebay_norns_api::{Configuration, configuration};

use super::{Arguments, POLL_INTERVAL, stop_flag};

/// Runs the service until a signal arrives or an administrator ends it.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    for (given, option) in
        [(arguments.name.is_some(), "--name"), (arguments.metrics.is_some(), "--metrics")]
    {
        if given {
            let reason = format!("{option} is for the daemons of a pool; norns does not have it");
            return Err(Failure::Input(reason));
        }
    }
    let file = arguments.config.clone().unwrap_or_else(configuration::selected_file);
    let configuration =
        Configuration::read(&file).map_err(|error| Failure::Input(error.to_string()))?;
    if arguments.check {
        let text = format!("{}: the configuration is valid\n", file.display());
        return print_stdout(&text).map_err(|error| Failure::Failed(error.to_string()));
    }
    let log_file = configuration.log_file.clone().filter(|_| !configuration.use_syslog);
    let log = arguments.log.or_file(log_file);
    if configuration.use_syslog {
        log::start_service(&log, || Syslog, LevelFilter::INFO)?;
    } else {
        log::start(&log, io::stderr)?;
    }
    let stop = stop_flag();
    let service =
        Service::start(&configuration).map_err(|error| Failure::Failed(error.to_string()))?;
    print_stderr(format_args!("forebayd: norns is running"));
    while !stop.load(Ordering::Relaxed) && !service.has_ended() {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Sends each line to the system's log.
struct Syslog;

impl Write for Syslog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text: Vec<u8> = line.iter().copied().filter(|byte| *byte != 0).collect();
        if let Ok(text) = CString::new(text) {
            let priority = libc::LOG_DAEMON | libc::LOG_INFO;
            // SAFETY: both are strings that end with a null byte, and the format has one of them.
            unsafe { libc::syslog(priority, c"%s".as_ptr(), text.as_ptr()) };
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
