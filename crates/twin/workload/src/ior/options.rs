//! The table of IOR's options: names, values, effects.

/// The effect of an option, or the reason why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OptionKey {
    Api,
    Barriers,
    Block,
    Collective,
    Delay,
    Deadline,
    Directives,
    DirectIo,
    FilePerProcess,
    Fsync,
    FsyncPerWrite,
    KeepFile,
    MaxMinutes,
    MaxTransfers,
    MultiFile,
    NodeOffset,
    OffsetSeed,
    RandomOffset,
    Read,
    ReferenceNumber,
    ReorderConstant,
    ReorderRandom,
    ReorderSeed,
    Repetitions,
    Script,
    Segments,
    SummaryFormat,
    Tasks,
    TestFile,
    Transfer,
    UniqueDirectory,
    UseExisting,
    Verbose,
    WearOut,
    Write,
    /// Accepted with a note, without effect for this reason.
    Ignored(&'static str),
    /// Refused for this reason.
    Refused(&'static str),
}

/// One option of IOR.
pub(super) struct OptionSpec {
    /// Letter on the command line.
    pub short: Option<char>,
    /// Name after `--` on the command line.
    pub long: Option<&'static str>,
    /// Name in scripts and after `-O`; case-insensitive.
    pub directive: &'static str,
    /// Name of the value in the help; `None` for a flag.
    pub value: Option<&'static str>,
    /// Its effect.
    pub key: OptionKey,
    /// One line of help.
    pub help: &'static str,
}

impl OptionSpec {
    /// The option as written on the command line, with its directive.
    fn name(&self) -> String {
        match (self.short, self.long) {
            (Some(c), _) => format!("-{c} ({})", self.directive),
            (None, Some(long)) => format!("--{long}"),
            (None, None) => format!("-O {}", self.directive),
        }
    }
}

const fn short(
    short: char,
    directive: &'static str,
    value: Option<&'static str>,
    key: OptionKey,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { short: Some(short), long: None, directive, value, key, help }
}

const fn long(
    name: &'static str,
    value: Option<&'static str>,
    key: OptionKey,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { short: None, long: Some(name), directive: name, value, key, help }
}

const fn directive(
    name: &'static str,
    value: &'static str,
    key: OptionKey,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { short: None, long: None, directive: name, value: Some(value), key, help }
}

const NO_DATA: &str = "simulated data have no contents to fill, compare or keep";
const NO_MEMORY: &str = "the memory of a simulated node is not filled";
const NO_RETRY: &str = "a simulated transfer is never incomplete";
const NO_OUTLIERS: &str =
    "there are no warnings of outliers; the results have the distribution of times";
const ONE_MOUNT: &str = "a simulated node has one mount point";
pub(super) const VERBOSE: &str =
    "the report has one level of detail; the number is printed among the options";
pub(super) const REFERENCE: &str = "the number is printed in the summary";
const OLD_DIRECT: &str = "an option of IOR 3; use --posix.odirect to bypass the client's cache";
const OLD_HINTS: &str = "an option of IOR 3; a simulated MPI-IO has no hints to show";
const CHECK_READ: &str = "data are not compared, and it adds no read phase: use -r for one";
const CHECK_WRITE: &str = "data are not read back and compared; use -r for a timed read phase";

const HDF5: &str = "the HDF5 interface is not modelled";
const MPI_DETAIL: &str = "this detail of MPI-IO is not modelled";
const LUSTRE: &str = "striping is set by the instance or machine, not by IOR";
const FILES: &str = "results are written by the simulator's own options";
const GPU: &str = "GPU memory is not modelled";

use OptionKey::{Ignored, Refused};

/// All options of IOR 4.1, and common ones of IOR 3.
#[rustfmt::skip]
pub(super) const OPTIONS: &[OptionSpec] = &[
    short('a', "api", Some("S"), OptionKey::Api, "interface: POSIX or MPIIO [POSIX]"),
    short('A', "refNum", Some("N"), OptionKey::ReferenceNumber, "number printed in the summary [0]"),
    short('b', "blockSize", Some("N"), OptionKey::Block, "contiguous bytes of one task [1m]"),
    short('B', "useO_DIRECT", None, Ignored(OLD_DIRECT), "of IOR 3"),
    short('c', "collective", None, OptionKey::Collective, "collective transfers"),
    short('C', "reorderTasks", None, OptionKey::ReorderConstant, "read what the node -Q further on wrote"),
    short('d', "interTestDelay", Some("N"), OptionKey::Delay, "seconds to wait before each phase [0]"),
    short('D', "deadlineForStonewalling", Some("N"), OptionKey::Deadline, "seconds after which a phase is stopped [never]"),
    short('e', "fsync", None, OptionKey::Fsync, "fsync at the end of the write phase"),
    short('E', "useExistingTestFile", None, OptionKey::UseExisting, "do not remove files before writing"),
    short('f', "scriptFile", Some("S"), OptionKey::Script, "read tests from a script"),
    short('F', "filePerProc", None, OptionKey::FilePerProcess, "one file per task"),
    short('g', "intraTestBarriers", None, OptionKey::Barriers, "barriers between open, transfers and close"),
    short('G', "setTimeStampSignature", Some("N"), Ignored(NO_DATA), "data signature"),
    short('H', "showHints", None, Ignored(OLD_HINTS), "of IOR 3"),
    short('i', "repetitions", Some("N"), OptionKey::Repetitions, "repetitions [1]"),
    short('I', "individualDataSets", None, Refused(HDF5), ""),
    short('j', "outlierThreshold", Some("N"), Ignored(NO_OUTLIERS), "warn of outliers"),
    short('J', "setAlignment", Some("N"), Refused(HDF5), ""),
    short('k', "keepFile", None, OptionKey::KeepFile, "do not remove the files at the end"),
    short('K', "keepFileWithError", None, Ignored(NO_DATA), "keep files with wrong data"),
    OptionSpec { short: Some('l'), long: Some("dataPacketType"), directive: "dataPacketType", value: Some("S"),
           key: Ignored(NO_DATA), help: "kind of data" },
    short('m', "multiFile", None, OptionKey::MultiFile, "new files for each repetition"),
    short('M', "memoryPerNode", Some("N"), Ignored(NO_MEMORY), "fill memory"),
    short('n', "noFill", None, Refused(HDF5), ""),
    short('N', "numTasks", Some("N"), OptionKey::Tasks, "use only the first N processes [all]"),
    short('o', "testFile", Some("S"), OptionKey::TestFile, "path of the file, or several joined by @ [testFile]"),
    short('O', "directives", Some("S"), OptionKey::Directives, "directives: name=value,name=value"),
    short('p', "preallocate", None, Refused(MPI_DETAIL), ""),
    short('P', "useSharedFilePointer", None, Refused(MPI_DETAIL), ""),
    short('q', "quitOnError", None, Refused(NO_DATA), ""),
    short('Q', "taskPerNodeOffset", Some("N"), OptionKey::NodeOffset, "distance in nodes for -C and -Z [1]"),
    short('r', "readFile", None, OptionKey::Read, "read phase"),
    short('R', "checkRead", None, Ignored(CHECK_READ), "compare data read"),
    short('s', "segmentCount", Some("N"), OptionKey::Segments, "repetitions of the blocks in the file [1]"),
    short('S', "useStridedDatatype", None, Refused(MPI_DETAIL), ""),
    short('t', "transferSize", Some("N"), OptionKey::Transfer, "bytes of one transfer [256k]"),
    short('T', "maxTimeDuration", Some("N"), OptionKey::MaxMinutes, "minutes after which no phase begins [never]"),
    short('u', "uniqueDir", None, OptionKey::UniqueDirectory, "with -F: a directory for each file"),
    short('U', "hintsFileName", Some("S"), Refused(MPI_DETAIL), ""),
    short('v', "verbose", None, OptionKey::Verbose, "more output"),
    short('V', "useFileView", None, Refused(MPI_DETAIL), ""),
    short('w', "writeFile", None, OptionKey::Write, "write phase"),
    short('W', "checkWrite", None, Ignored(CHECK_WRITE), "compare data written"),
    short('x', "singleXferAttempt", None, Ignored(NO_RETRY), "do not retry transfers"),
    short('X', "reorderTasksRandomSeed", Some("N"), OptionKey::ReorderSeed, "seed of -Z and -z [0]"),
    short('y', "dualMount", None, Ignored(ONE_MOUNT), "two mount points"),
    short('Y', "fsyncPerWrite", None, OptionKey::FsyncPerWrite, "fsync after each write"),
    short('z', "randomOffset", None, OptionKey::RandomOffset, "transfers in shuffled order"),
    short('Z', "reorderTasksRandom", None, OptionKey::ReorderRandom, "read what a random task wrote; twice: a permutation"),
    OptionSpec { short: None, long: Some("collective"), directive: "collective", value: None,
           key: OptionKey::Collective, help: "the same as -c" },
    long("posix.odirect", None, OptionKey::DirectIo, "bypass the client's cache"),
    long("random-offset-seed", Some("N"), OptionKey::OffsetSeed, "seed of -z [that of -X]"),
    long("randomPrefill", Some("N"), Refused("files are not filled before a random write"), ""),
    long("warningAsErrors", None, Refused("IOR's warnings are errors here already"), ""),
    long("dryRun", None, Refused("a simulation moves no data in any case; omit it"), ""),
    long("posix.rangelocks", None, Refused("range locks are not modelled"), ""),
    long("posix.lustre.stripecount", Some("N"), Refused(LUSTRE), ""),
    long("posix.lustre.stripesize", Some("N"), Refused(LUSTRE), ""),
    long("posix.lustre.startost", Some("N"), Refused(LUSTRE), ""),
    long("posix.lustre.ignorelocks", None, Refused(LUSTRE), ""),
    long("posix.lustre.pool", Some("S"), Refused(LUSTRE), ""),
    long("mpiio.hintsFileName", Some("S"), Refused(MPI_DETAIL), ""),
    long("mpiio.showHints", None, Refused(MPI_DETAIL), ""),
    long("mpiio.preallocate", None, Refused(MPI_DETAIL), ""),
    long("mpiio.useStridedDatatype", None, Refused(MPI_DETAIL), ""),
    long("mpiio.useFileView", None, Refused(MPI_DETAIL), ""),
    long("gpuDirect", None, Refused(GPU), ""),
    directive("stoneWallingWearOut", "1", OptionKey::WearOut, "with -D: all tasks make as many transfers as the furthest"),
    directive("stoneWallingWearOutIterations", "N", OptionKey::MaxTransfers, "end phases after N transfers a task"),
    directive("summaryFormat", "default", OptionKey::SummaryFormat, "only `default`"),
    directive("useO_DIRECT", "1", OptionKey::DirectIo, "the same as --posix.odirect"),
    directive("reorderTasksConstant", "1", OptionKey::ReorderConstant, "the same as -C"),
    directive("memoryPerTask", "N", Ignored(NO_MEMORY), "fill memory"),
    directive("stoneWallingStatusFile", "S", Refused("use -w and -r in one run instead"), ""),
    directive("minTimeDuration", "N", Refused("a phase ends with its last transfer; raise -s or -b"), ""),
    directive("interIODelay", "N", Refused("time between transfers is not modelled"), ""),
    directive("summaryFile", "S", Refused(FILES), ""),
    directive("summaryAlways", "N", Refused(FILES), ""),
    directive("saveRankPerformanceDetailsCSV", "S", Refused(FILES), ""),
    directive("savePerOpDataCSV", "S", Refused(FILES), ""),
    directive("numNodes", "N", Refused("the simulated job determines the number of nodes"), ""),
    directive("numTasksOnNode0", "N", Refused("the simulated job determines the number of processes per node"), ""),
    directive("allocateBufferOnGPU", "N", Refused(GPU), ""),
    directive("GPUid", "N", Refused(GPU), ""),
    directive("debug", "S", Refused("IOR's debug output is not simulated"), ""),
    directive("platform", "S", Refused("the platform is the simulated machine"), ""),
];

/// The options as a text table.
pub fn help() -> String {
    let mut text = String::from("IOR options (sizes with k, m, g, t are powers of 1024):\n");
    for (title, ignored) in [("", false), ("Accepted, but without effect in a simulation:\n", true)]
    {
        text.push_str(title);
        for spec in OPTIONS {
            if matches!(spec.key, Refused(_)) || matches!(spec.key, Ignored(_)) != ignored {
                continue;
            }
            let name = match (spec.short, spec.long) {
                (Some(c), _) => format!("-{c} {}", spec.value.unwrap_or_default()),
                (None, Some(name)) => match spec.value {
                    Some(value) => format!("--{name}={value}"),
                    None => format!("--{name}"),
                },
                (None, None) => {
                    format!("-O {}={}", spec.directive, spec.value.unwrap_or_default())
                }
            };
            text.push_str(&format!("  {name:<38} {}\n", spec.help));
        }
    }
    text
}

/// The option of a letter.
pub(super) fn by_letter(letter: char) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|s| s.short == Some(letter))
}

/// The option of a `--name`.
pub(super) fn by_long(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|s| s.long == Some(name))
}

/// The option of a directive, ignoring case; `--name` is accepted, too. Of two options with the same
/// name it is the later one: `useO_DIRECT` means direct I/O, although the letter `-B` does not.
pub(super) fn by_directive(name: &str) -> Option<&'static OptionSpec> {
    match name.strip_prefix("--") {
        Some(long) => by_long(long),
        None => OPTIONS.iter().rfind(|s| s.directive.eq_ignore_ascii_case(name)),
    }
}

/// The suggestion for an unknown letter: its other case, or all letters.
pub(super) fn suggest_letter(letter: char) -> String {
    let other: Vec<&OptionSpec> = OPTIONS
        .iter()
        .filter(|s| !matches!(s.key, Refused(_)))
        .filter(|s| s.short.is_some_and(|c| c.eq_ignore_ascii_case(&letter)))
        .collect();
    match other.first() {
        Some(spec) => format!("did you mean {}: {}?", spec.name(), spec.help),
        None => {
            let letters: String = OPTIONS
                .iter()
                .filter(|s| !matches!(s.key, Refused(_)))
                .filter_map(|s| s.short)
                .collect();
            format!("its letters are {letters}")
        }
    }
}

/// The suggestion for an unknown name: the most similar one.
pub(super) fn suggest_name(name: &str) -> String {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let nearest = OPTIONS
        .iter()
        .filter(|s| !matches!(s.key, Refused(_)))
        .max_by(|a, b| similarity(&name, a).total_cmp(&similarity(&name, b)));
    match nearest {
        Some(spec) => format!("the nearest is {}: {}", spec.name(), spec.help),
        None => "see --help".to_string(),
    }
}

/// Similarity of a name to an option's, 0 to 1.
fn similarity(name: &str, spec: &OptionSpec) -> f64 {
    let directive = strsim::jaro_winkler(name, &spec.directive.to_ascii_lowercase());
    let long = spec.long.map_or(0.0, |l| strsim::jaro_winkler(name, &l.to_ascii_lowercase()));
    directive.max(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_long_names_are_unique() {
        let mut letters: Vec<char> = OPTIONS.iter().filter_map(|s| s.short).collect();
        let count = letters.len();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), count);
        let mut longs: Vec<&str> = OPTIONS.iter().filter_map(|s| s.long).collect();
        let count = longs.len();
        longs.sort_unstable();
        longs.dedup();
        assert_eq!(longs.len(), count);
    }

    #[test]
    fn suggestion_is_the_most_similar_option() {
        assert!(
            suggest_name("blocksiz").contains("-b (blockSize)"),
            "{}",
            suggest_name("blocksiz")
        );
        assert!(suggest_name("posix.direct").contains("--posix.odirect"));
        assert!(suggest_name("--transfer-size").contains("-t (transferSize)"));
        assert!(suggest_letter('S').contains("-s (segmentCount)"));
        assert!(suggest_letter('7').contains("wW"));
    }
}
