//! Logs: to a file, or to standard error.

use crate::failure::Failure;
use crate::journal::{JournalWriter, is_stderr_in_journal};
use crate::log_file::LogFile;
use crate::rate_limit::RateLimit;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tracing_subscriber::EnvFilter;
pub use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Environment variable with the log filter.
const FILTER_VARIABLE: &str = "FOREBAY_LOG";

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text per event
    Text,
    /// One JSON object per line
    Json,
}

/// Command-line options for logging.
#[derive(Debug, Args)]
pub struct LogArguments {
    /// Append logs to this file [default: standard error, only errors; of daemons also warnings]
    #[arg(
        id = "log_file",
        long = "log",
        global = true,
        value_name = "FILE",
        help_heading = "Logs"
    )]
    log: Option<PathBuf>,
    /// Format of the logs
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        value_name = "FORMAT",
        help_heading = "Logs"
    )]
    log_format: LogFormat,
}

impl LogArguments {
    /// Whether logs go to standard error.
    pub fn is_stderr(&self) -> bool {
        self.log.is_none()
    }

    /// Logs to `file`, unless the command line names another one.
    pub fn or_file(&self, file: Option<PathBuf>) -> LogArguments {
        LogArguments { log: self.log.clone().or(file), log_format: self.log_format }
    }
}

/// Starts logging, to the file of `arguments` or else to `stderr`. `FOREBAY_LOG` is the filter,
/// such as `debug` or `forebay_store=debug,warn`; the default is `info` for a file and `error` for
/// standard error.
pub fn start<W>(arguments: &LogArguments, stderr: W) -> Result<(), Failure>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    start_with(arguments, stderr, LevelFilter::ERROR, Arc::default())
}

/// As [`start`], to the file of `arguments` or else to `writer`, with this default filter there.
/// SIGHUP no longer ends the process: the file is opened again.
pub fn start_service<W>(
    arguments: &LogArguments,
    writer: W,
    default: LevelFilter,
) -> Result<(), Failure>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    start_with(arguments, writer, default, flag_of_reload_signal()?)
}

/// As [`start_service`], to standard error, from which warnings are logged as well. In the journal
/// of systemd lines have priorities instead of times.
pub fn start_daemon(arguments: &LogArguments) -> Result<(), Failure> {
    let reopen = flag_of_reload_signal()?;
    if arguments.log.is_some() || !is_stderr_in_journal() {
        return start_with(arguments, std::io::stderr, LevelFilter::WARN, reopen);
    }
    let filter = parse_filter(std::env::var(FILTER_VARIABLE).ok().as_deref(), LevelFilter::WARN)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_level(false)
        .without_time()
        .with_writer(JournalWriter::new(std::io::stderr));
    let installed = match arguments.log_format {
        LogFormat::Text => log.finish().with(RateLimit::default()).try_init(),
        LogFormat::Json => log.json().finish().with(RateLimit::default()).try_init(),
    };
    installed.map_err(|error| Failure::Failed(format!("cannot install the logger: {error}")))
}

/// A flag that SIGHUP sets.
///
/// # Errors
/// The signal cannot be handled.
pub fn flag_of_reload_signal() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, flag.clone())
        .map_err(|error| Failure::Failed(format!("cannot handle SIGHUP: {error}")))?;
    Ok(flag)
}

fn start_with<W>(
    arguments: &LogArguments,
    writer: W,
    default: LevelFilter,
    reopen: Arc<AtomicBool>,
) -> Result<(), Failure>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let default = match arguments.log {
        Some(_) => LevelFilter::INFO,
        None => default,
    };
    let filter = parse_filter(std::env::var(FILTER_VARIABLE).ok().as_deref(), default)?;
    let installed = match &arguments.log {
        Some(path) => {
            let file = LogFile::open(path.clone(), reopen);
            let file =
                file.map_err(|error| Failure::Input(format!("--log {}: {error}", path.display())))?;
            install(filter, arguments.log_format, Mutex::new(file))
        }
        None => install(filter, arguments.log_format, writer),
    };
    installed.map_err(|error| Failure::Failed(format!("cannot install the logger: {error}")))
}

fn parse_filter(text: Option<&str>, default: LevelFilter) -> Result<EnvFilter, Failure> {
    let text = text.unwrap_or_default();
    let invalid = |reason: &str| {
        Failure::Input(format!(
            "{FILTER_VARIABLE}: `{text}` is not a valid log filter ({reason}); \
             write a level such as `debug`, or `forebay_store=debug,warn`"
        ))
    };
    if let Some(word) = text.split(',').map(str::trim).find(|word| is_misspelt_level(word)) {
        return Err(invalid(&format!("there is no level `{word}`")));
    }
    let builder = EnvFilter::builder().with_default_directive(default.into());
    builder.parse(text).map_err(|error| invalid(&error.to_string()))
}

/// Whether a part of a filter is a word that is neither a level nor one of these programs' modules. A filter
/// takes it for the name of a module, of which there is none.
fn is_misspelt_level(part: &str) -> bool {
    !part.is_empty()
        && part.chars().all(|c| c.is_ascii_alphabetic())
        && !part.starts_with("forebay")
        && part.parse::<LevelFilter>().is_err()
}

fn install<W>(
    filter: EnvFilter,
    format: LogFormat,
    writer: W,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(writer);
    match format {
        LogFormat::Text => log.finish().with(RateLimit::default()).try_init()?,
        LogFormat::Json => log.json().finish().with(RateLimit::default()).try_init()?,
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    #[test]
    fn filter_accepts_levels_and_targets_and_names_an_invalid_one() {
        for text in [None, Some("debug"), Some("forebay_store=debug,warn"), Some("off")] {
            assert!(parse_filter(text, LevelFilter::WARN).is_ok(), "{text:?}");
        }
        for misspelt in ["debgu", "forebay_store=debug,wran"] {
            let error = parse_filter(Some(misspelt), LevelFilter::WARN).unwrap_err();
            assert!(error.to_string().contains("there is no level"), "{error}");
        }
        let error = parse_filter(Some("forebay_store=loud"), LevelFilter::WARN).unwrap_err();
        assert!(
            matches!(&error, Failure::Input(text) if text.contains("forebay_store=loud")),
            "{error}"
        );
    }
}
