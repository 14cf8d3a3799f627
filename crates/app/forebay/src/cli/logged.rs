//! The log of MPI-IO in `forebay sim ior`.

use clap::ValueEnum;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use forebay_machine::results::{IorPoint, LoggedWrites};
use forebay_machine::study::LogFlush;
use forebay_units::human::{counted, number, seconds};
use std::ffi::OsStr;

/// When the log of MPI-IO is applied to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogArg {
    /// Before the file is closed
    Close,
    /// After the close, by a thread of each process
    Background,
    /// After the job, by one mover
    StageOut,
}

impl LogArg {
    pub(super) fn flush(self) -> LogFlush {
        match self {
            LogArg::Close => LogFlush::Close,
            LogArg::Background => LogFlush::Background,
            LogArg::StageOut => LogFlush::StageOut,
        }
    }
}

/// Parser of [`LogArg`], whose errors name the option for the program's own log: other commands have
/// `--log FILE`.
#[derive(Clone)]
pub(super) struct LogArgParser;

impl TypedValueParser for LogArgParser {
    type Value = LogArg;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<LogArg, clap::Error> {
        EnumValueParser::new().parse_ref(command, argument, value).map_err(|mut error| {
            let file = value.to_string_lossy();
            let tip = format!("for logs of this program, use '--log-file {file}'");
            let tip = ContextValue::StyledStrs(vec![tip.into()]);
            error.insert(ContextKind::Suggested, tip);
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = LogArg::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(Box::new(values))
    }
}

/// The lines about the log, one for each node count that has one.
pub(super) fn lines(points: &[IorPoint]) -> impl Iterator<Item = String> {
    points.iter().filter_map(|point| Some(line(point, point.logged.as_ref()?)))
}

/// The line about one node count.
pub(super) fn line(point: &IorPoint, logged: &LoggedWrites) -> String {
    let nodes = counted(point.nodes.into(), "node");
    let parts =
        [("log", &logged.log), ("read logs", &logged.log_read), ("write file", &logged.file_write)];
    let parts: Vec<String> = parts
        .into_iter()
        .filter_map(|(name, phase)| Some(format!("{name} {}", seconds(phase.as_ref()?.seconds))))
        .collect();
    let past = if logged.past_log { ", past the log" } else { "" };
    format!(
        "{nodes}, logged, applied at {}: write {} GB/s, {} times as fast ({} instead of {}{past}); \
         complete after {}: {}",
        logged.flush,
        number(logged.gbps),
        number(logged.gain),
        seconds(logged.seconds),
        seconds(logged.plain_seconds),
        seconds(logged.complete_seconds),
        parts.join(", "),
    )
}
