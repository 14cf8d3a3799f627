//! The log of MPI-IO in `forebay sim ior`.

use forebay_machine::results::{IorPoint, LoggedWrites};
use forebay_machine::study::LogFlush;
use forebay_units::human::{counted, number, seconds};

/// When the log of MPI-IO is applied to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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
