//! Where logs go: to standard error if something goes badly wrong, or to a file.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Variable that says what is logged.
const VARIABLE: &str = "FOREBAY_LOG";

/// What is not logged unless it is asked for by name.
const UNWANTED: &str = "fuser::reply";

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object on a line
    Json,
}

/// Options that say where logs go.
#[derive(Debug, Args)]
pub struct LogArguments {
    /// Append logs to this file [default: errors to standard error]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Logs")]
    log: Option<PathBuf>,
    /// How they are written
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

/// Logs from now on. `FOREBAY_LOG` says what, such as `debug` or `forebay_store=debug,warn`; if it
/// is not set, a file gets what is informative and standard error what the
/// command does not tell itself.
pub fn start(arguments: &LogArguments) -> Result<(), Failure> {
    let default = match arguments.log {
        Some(_) => LevelFilter::INFO,
        None => LevelFilter::ERROR,
    };
    let filter = filter(std::env::var(VARIABLE).ok().as_deref(), default)?;
    let started = match &arguments.log {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file =
                file.map_err(|error| Failure::Input(format!("--log {}: {error}", path.display())))?;
            begin(filter, arguments.log_format, Mutex::new(file))
        }
        None => begin(filter, arguments.log_format, BesideProgress),
    };
    started.map_err(|error| Failure::Failed(format!("logs cannot be written: {error}")))
}

fn filter(text: Option<&str>, default: LevelFilter) -> Result<EnvFilter, Failure> {
    let text = text.unwrap_or_default();
    let builder = EnvFilter::builder().with_default_directive(default.into());
    // It reports every answer that the kernel no longer wants as an error, that is, for every
    // operation whose process was interrupted.
    let all = match text {
        "" => format!("{UNWANTED}=off,{default}"),
        text => format!("{UNWANTED}=off,{text}"),
    };
    builder.parse(&all).map_err(|error| {
        Failure::Input(format!(
            "{VARIABLE}: `{text}` says not what to log ({error}); \
             write a level such as `debug`, or `forebay_store=debug,warn`"
        ))
    })
}

fn begin<W>(
    filter: EnvFilter,
    format: LogFormat,
    writer: W,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(writer);
    match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    }
}

/// Standard error. In a terminal the command may be rewriting a line there, which then goes: it
/// is written anew a moment later.
struct BesideProgress;

impl Write for BesideProgress {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        if stderr.is_terminal() {
            stderr.write_all(b"\r\x1b[K")?;
        }
        stderr.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for BesideProgress {
    type Writer = BesideProgress;

    fn make_writer(&'a self) -> BesideProgress {
        BesideProgress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_or_targets_with_levels() {
        for text in [
            None,
            Some("debug"),
            Some("forebay_store=debug,warn"),
            Some("off"),
        ] {
            assert!(filter(text, LevelFilter::WARN).is_ok(), "{text:?}");
        }
        let bad = filter(Some("forebay_store=loud"), LevelFilter::WARN).unwrap_err();
        assert!(
            matches!(&bad, Failure::Input(text) if text.contains("forebay_store=loud")),
            "{bad}"
        );
    }
}
