//! Configurations and their predicted times.

use forebay_job_script::Capacity;
use forebay_units::Bytes;
use serde::Serialize;

/// A predicted stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageTime {
    /// Its bytes.
    pub bytes: u64,
    /// Its duration.
    pub seconds: f64,
    /// The limiting resource with its rate; empty for a stage without data.
    pub limit: String,
}

/// A file system on which the job could do its I/O, with the predicted times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Configuration {
    /// `burst-buffer` or `pfs`.
    pub file_system: String,
    /// Capacity as in a `#DW` line (`164GiB`, `2nodes`); `None` for the parallel file system.
    pub capacity: Option<String>,
    /// Targets of a file on the parallel file system; `None`: not simulated, or a burst buffer.
    pub stripe_count: Option<u32>,
    /// Storage nodes of the instance.
    pub storage_nodes: u32,
    /// Access modes with these times: `striped`, and `private` if each compute node accesses only its own
    /// files.
    pub access_modes: Vec<String>,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Time of the write phases.
    pub write_seconds: Option<f64>,
    /// Time of the read phases.
    pub read_seconds: Option<f64>,
    /// Time of all phases.
    pub io_seconds: f64,
    /// Whether the times are those at the file system's peak rate, which it reaches at best.
    pub is_bound: bool,
    /// The share of the run that I/O takes, if the run's time or the interval is known.
    pub share: Option<f64>,
    /// The limiting resource of the longest phase.
    pub limit: String,
    /// The evidence for it.
    pub because: String,
    /// `packet` or `flow`, the latter if any of its tests was simulated with flows; `None`: a bound, not simulated.
    pub fidelity: Option<String>,
    /// Effects that flows leave out.
    pub left_out: Vec<String>,
    /// Warnings about the simulation, each with the remedy.
    pub warnings: Vec<String>,
    /// The stage-in, where the rates are known.
    pub stage_in: Option<StageTime>,
    /// The stage-out, where the rates are known.
    pub stage_out: Option<StageTime>,
}

/// Units of capacities with the logarithms of their bytes, from the largest.
pub(crate) const CAPACITY_UNITS: [(&str, u32); 4] =
    [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// A capacity as in a `#DW` line: in the largest binary unit of which it is a multiple.
pub(crate) fn capacity_text(capacity: Capacity) -> String {
    match capacity {
        Capacity::Nodes(count) => format!("{count}nodes"),
        Capacity::Bytes(Bytes(bytes)) => {
            let whole = CAPACITY_UNITS.iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift));
            match whole {
                Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
                None => format!("{}KiB", bytes.div_ceil(1 << 10)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_written_so_that_directives_accept_it() {
        for (bytes, text) in [
            (164 << 30, "164GiB"),
            (1 << 40, "1TiB"),
            (406_976 << 20, "406976MiB"),
            (3 << 10, "3KiB"),
            (1025, "2KiB"),
        ] {
            assert_eq!(capacity_text(Capacity::Bytes(Bytes(bytes))), text);
            assert!(Capacity::parse(text).is_ok());
        }
        assert_eq!(capacity_text(Capacity::Nodes(2)), "2nodes");
        assert_eq!(Capacity::parse("2nodes"), Ok(Capacity::Nodes(2)));
    }
}
