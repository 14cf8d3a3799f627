//! Accumulates the options of a test: later ones override earlier ones.

use super::directive::{Directive, parse_directives};
use super::error::{IorError, OptionLocation};
use super::options::{OptionKey, OptionSpec};
use super::size;
use super::spec::{Api, Ior, Note, Reorder};
use forebay_units::Bytes;
use std::collections::BTreeMap;

/// The options read so far. Flags are counted, as in IOR: a repeated flag may have another meaning,
/// and a script may reset it to 0.
#[derive(Clone, Debug)]
pub(super) struct IorBuilder {
    ior: Ior,
    pub(super) reorder_constant: u32,
    pub(super) reorder_random: u32,
    pub(super) random_offset: u32,
    pub(super) deadline: u32,
    pub(super) wear_out: bool,
    pub(super) node_offset_given: bool,
    pub(super) script: Option<(String, OptionLocation)>,
    /// Location of the last occurrence of each option.
    locations: BTreeMap<OptionKey, OptionLocation>,
}

impl Default for IorBuilder {
    fn default() -> Self {
        IorBuilder {
            ior: Ior {
                id: 0,
                api: Api::Posix,
                block: Bytes(1 << 20),
                transfer: Bytes(256 << 10),
                segments: 1,
                file_per_process: false,
                write: false,
                read: false,
                test_file: "testFile".to_string(),
                repetitions: 1,
                tasks: None,
                fsync: false,
                fsync_per_write: false,
                barriers: false,
                reorder: Reorder::Own,
                node_offset: 1,
                reorder_seed: None,
                random_offsets: false,
                offset_seed: None,
                collective: false,
                keep_file: false,
                stonewall: None,
                max_transfers: None,
                delay_seconds: 0,
                unique_directory: false,
                use_existing: false,
                multi_file: false,
                max_minutes: None,
                direct_io: false,
                reference_number: 0,
                verbosity: 0,
                notes: Vec::new(),
            },
            reorder_constant: 0,
            reorder_random: 0,
            random_offset: 0,
            deadline: 0,
            wear_out: false,
            node_offset_given: false,
            script: None,
            locations: BTreeMap::new(),
        }
    }
}

/// One occurrence of an option.
pub(super) struct Given<'a> {
    /// As it was written.
    pub option: &'a str,
    /// The text after it; for flags none, or a number.
    pub value: Option<&'a str>,
    pub location: &'a OptionLocation,
    pub spec: &'a OptionSpec,
}

impl Given<'_> {
    fn invalid(&self, remedy: &str) -> IorError {
        let (option, value) = (self.option, self.value.unwrap_or_default());
        self.location.error(format_args!("option `{option}` cannot be `{value}`: {remedy}"))
    }

    /// The value of an option that requires one.
    fn text(&self) -> Result<&str, IorError> {
        match self.value {
            Some(text) if !text.is_empty() => Ok(text),
            _ => {
                let (option, help) = (self.option, self.spec.help);
                Err(self.location.error(format_args!("option `{option}` needs a value: {help}")))
            }
        }
    }

    /// A number from `min` to `max`.
    fn number(&self, min: i64, max: i64) -> Result<i64, IorError> {
        match size::parse(self.text()?) {
            None => Err(self.invalid(size::SYNTAX)),
            Some(number) if number < min => Err(self.invalid(&format!("the minimum is {min}"))),
            Some(number) if number > max => Err(self.invalid(&format!("the maximum is {max}"))),
            Some(number) => Ok(number),
        }
    }

    /// A number from `min` to the largest of IOR's integers.
    fn integer(&self, min: u32) -> Result<u32, IorError> {
        let number = self.number(i64::from(min), i64::from(i32::MAX))?;
        u32::try_from(number).map_err(|_| self.invalid(size::SYNTAX))
    }

    /// A size of at least one byte.
    fn size(&self) -> Result<u64, IorError> {
        self.number(1, i64::MAX).map(i64::unsigned_abs)
    }

    /// The count of a flag: one more than before, or the number after `=`.
    fn count(&self, before: u32) -> Result<u32, IorError> {
        match self.value {
            None => Ok(before.saturating_add(1)),
            Some(_) => self.integer(0),
        }
    }

    fn flag(&self) -> Result<bool, IorError> {
        Ok(self.count(0)? > 0)
    }
}

impl IorBuilder {
    /// Applies one option.
    pub(super) fn apply(&mut self, given: &Given<'_>) -> Result<(), IorError> {
        let &Given { option, value, location, spec } = given;
        let ior = &mut self.ior;
        match spec.key {
            OptionKey::Api => ior.api = api(given)?,
            OptionKey::Barriers => ior.barriers = given.flag()?,
            OptionKey::Block => ior.block = Bytes(given.size()?),
            OptionKey::Collective => ior.collective = given.flag()?,
            OptionKey::Delay => ior.delay_seconds = given.integer(0)?,
            OptionKey::Deadline => self.deadline = given.integer(0)?,
            OptionKey::DirectIo => ior.direct_io = given.flag()?,
            OptionKey::FilePerProcess => ior.file_per_process = given.flag()?,
            OptionKey::Fsync => ior.fsync = given.flag()?,
            OptionKey::FsyncPerWrite => ior.fsync_per_write = given.flag()?,
            OptionKey::KeepFile => ior.keep_file = given.flag()?,
            OptionKey::MaxMinutes => ior.max_minutes = Some(given.integer(0)?).filter(|&m| m > 0),
            OptionKey::MaxTransfers => {
                ior.max_transfers =
                    Some(given.number(0, i64::MAX)?.unsigned_abs()).filter(|&n| n > 0);
            }
            OptionKey::MultiFile => ior.multi_file = given.flag()?,
            OptionKey::NodeOffset => {
                ior.node_offset = given.integer(0)?;
                self.node_offset_given = true;
            }
            OptionKey::OffsetSeed => ior.offset_seed = Some(seed(given)?),
            OptionKey::RandomOffset => self.random_offset = given.count(self.random_offset)?,
            OptionKey::Read => ior.read = given.flag()?,
            OptionKey::ReferenceNumber => ior.reference_number = seed(given)?,
            OptionKey::ReorderConstant => {
                self.reorder_constant = given.count(self.reorder_constant)?
            }
            OptionKey::ReorderRandom => self.reorder_random = given.count(self.reorder_random)?,
            OptionKey::ReorderSeed => ior.reorder_seed = Some(seed(given)?),
            OptionKey::Repetitions => ior.repetitions = given.integer(1)?,
            OptionKey::Segments => ior.segments = given.size()?,
            OptionKey::SummaryFormat => {
                if !given.text()?.eq_ignore_ascii_case("default") {
                    return Err(
                        given.invalid("only `default` is supported; use --json for a document")
                    );
                }
            }
            OptionKey::Tasks => ior.tasks = Some(given.integer(1)?),
            OptionKey::TestFile => ior.test_file = given.text()?.to_string(),
            OptionKey::Transfer => ior.transfer = Bytes(given.size()?),
            OptionKey::UniqueDirectory => ior.unique_directory = given.flag()?,
            OptionKey::UseExisting => ior.use_existing = given.flag()?,
            OptionKey::Verbose => ior.verbosity = given.count(ior.verbosity)?,
            OptionKey::WearOut => self.wear_out = given.flag()?,
            OptionKey::Write => ior.write = given.flag()?,
            OptionKey::Script => {
                if let OptionLocation::Script { .. } = location {
                    let reason = "a script cannot call another script";
                    return Err(location.not_simulated(option, reason));
                }
                self.script = Some((given.text()?.to_string(), location.clone()));
            }
            OptionKey::Directives => {
                for directive in parse_directives(given.text()?, &|_| location.clone()) {
                    self.apply_directive(directive?)?;
                }
            }
            // Scripts list options with the value that disables them.
            OptionKey::Ignored(_) | OptionKey::Refused(_) if value == Some("0") => {}
            OptionKey::Ignored(reason) => {
                if spec.value.is_some() {
                    given.text()?;
                }
                self.note(option, format!("accepted without effect: {reason}"));
            }
            OptionKey::Refused(reason) => return Err(location.not_simulated(option, reason)),
        }
        self.locations.insert(spec.key, location.clone());
        Ok(())
    }

    /// Applies one directive of a script or of `-O`.
    pub(super) fn apply_directive(&mut self, directive: Directive<'_>) -> Result<(), IorError> {
        let Directive { spec, name, value, location } = directive;
        self.apply(&Given { option: name, value: Some(value), location: &location, spec })
    }

    /// Adds a note, once for each option.
    pub(super) fn note(&mut self, option: &str, text: String) {
        if self.ior.notes.iter().all(|n| n.option != option) {
            self.ior.notes.push(Note { option: option.to_string(), text });
        }
    }

    /// Location of the last of these options.
    pub(super) fn location(&self, keys: &[OptionKey]) -> Option<OptionLocation> {
        let order = |location: &OptionLocation| match location {
            OptionLocation::Argument(n) => (0, *n, 0),
            OptionLocation::Script { line, column, .. } => (1, *line, *column),
        };
        keys.iter().filter_map(|key| self.locations.get(key)).max_by_key(|p| order(p)).cloned()
    }

    /// The test so far.
    pub(super) fn ior(&self) -> &Ior {
        &self.ior
    }

    /// The test.
    pub(super) fn into_ior(self) -> Ior {
        self.ior
    }
}

fn api(given: &Given<'_>) -> Result<Api, IorError> {
    match given.text()?.to_ascii_uppercase().as_str() {
        "POSIX" => Ok(Api::Posix),
        "MPIIO" => Ok(Api::MpiIo),
        _ => Err(given.invalid("POSIX and MPIIO are simulated")),
    }
}

fn seed(given: &Given<'_>) -> Result<i32, IorError> {
    let number = given.number(i64::from(i32::MIN), i64::from(i32::MAX))?;
    i32::try_from(number).map_err(|_| given.invalid(size::SYNTAX))
}
