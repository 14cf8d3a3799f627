//! The header of a log.

use crate::error::{LogError, Place};
use crate::fields::{ByteOrder, Fields};
use crate::module::Module;
use std::fmt;
use std::io::{Read, Seek, SeekFrom};

/// Version of a log's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Always 3.
    pub major: u32,
    /// Two digits: 0, 10, 20, 21 or 41.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.major, self.minor)
    }
}

/// Compression of the regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// zlib streams.
    Zlib,
    /// bzip2 streams.
    Bzip2,
    /// None.
    None,
}

/// A part of the log in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u64,
    pub bytes: u64,
}

impl Extent {
    /// The extent, if it is within a file of `file_bytes`.
    fn checked(self, file_bytes: u64) -> Option<Extent> {
        let end = self.offset.checked_add(self.bytes)?;
        (end <= file_bytes).then_some(self)
    }
}

/// The records of a module in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleRegion {
    /// The module.
    pub module: Module,
    /// Version of its records.
    pub version: u32,
    /// Bytes in the file.
    pub bytes: u64,
    /// The module ran out of memory while it recorded: files are missing.
    pub is_partial: bool,
    pub(crate) extent: Extent,
}

/// The header of a log.
#[derive(Clone, Debug)]
pub struct Header {
    /// Version of the format.
    pub version: Version,
    /// Whether numbers begin with their high bytes.
    pub is_big_endian: bool,
    /// Compression of the regions.
    pub compression: Compression,
    /// The modules with records, in the order of the log.
    pub modules: Vec<ModuleRegion>,
    pub(crate) order: ByteOrder,
    pub(crate) job: Extent,
    pub(crate) names: Extent,
}

const MAGIC: i64 = 6_567_223;
const OLD_BYTES: u64 = 360;
const NEW_BYTES: u64 = 1328;

fn invalid(offset: u64, problem: impl Into<String>) -> LogError {
    LogError { place: Place::Header, offset, problem: problem.into() }
}

impl Header {
    /// Whether a module ran out of memory.
    pub fn is_partial(&self) -> bool {
        self.modules.iter().any(|module| module.is_partial)
    }

    /// The records of a module, if the log has any.
    pub fn module(&self, module: Module) -> Option<&ModuleRegion> {
        self.modules.iter().find(|region| region.module == module)
    }

    /// Reads the header of a log of `file_bytes`.
    pub(crate) fn read(
        source: &mut (impl Read + Seek),
        file_bytes: u64,
    ) -> Result<Header, LogError> {
        let failed = |error: std::io::Error| invalid(0, format!("cannot be read: {error}"));
        source.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut bytes = Vec::new();
        source.take(NEW_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let version = version(&bytes)?;
        let length = if version.minor >= 41 { NEW_BYTES } else { OLD_BYTES };
        if (bytes.len() as u64) < length {
            let have = bytes.len();
            return Err(invalid(
                have as u64,
                format!("the log ends here; {length} bytes are needed"),
            ));
        }
        let magic: [u8; 8] = bytes[8..16].try_into().unwrap_or_default();
        let order = match (i64::from_le_bytes(magic), i64::from_be_bytes(magic)) {
            (MAGIC, _) => ByteOrder::Little,
            (_, MAGIC) => ByteOrder::Big,
            _ => return Err(invalid(8, format!("not a Darshan log: {MAGIC} must be here"))),
        };
        let compression = match bytes[16] {
            0 => Compression::Zlib,
            1 => Compression::Bzip2,
            2 => Compression::None,
            other => {
                return Err(invalid(16, format!("compression {other}; 0, 1 and 2 are known")));
            }
        };
        let is_new = version.minor >= 41;
        let (flags_at, slots) = if is_new { (24, 64) } else { (20, 16) };
        let mut fields = Fields::new(&bytes[flags_at..], order);
        let partial = if is_new { fields.u64() } else { fields.u32().into() };
        let extent = |fields: &mut Fields<'_>| Extent { offset: fields.u64(), bytes: fields.u64() };
        let names = extent(&mut fields);
        let maps: Vec<Extent> = (0..slots).map(|_| extent(&mut fields)).collect();
        let mut modules = Vec::new();
        for (number, map) in (0u8..).zip(maps) {
            let version_of_records = fields.u32();
            let module = Module::numbered(number, version.minor);
            if map.bytes == 0 {
                continue;
            }
            let outside = || {
                let text = format!(
                    "the {module} records end beyond the log, which has {file_bytes} bytes"
                );
                invalid(flags_at as u64, text)
            };
            modules.push(ModuleRegion {
                module,
                version: version_of_records,
                bytes: map.bytes,
                is_partial: partial >> number & 1 == 1,
                extent: map.checked(file_bytes).ok_or_else(outside)?,
            });
        }
        modules.sort_by_key(|region| region.extent.offset);
        let outside = || invalid(flags_at as u64, "the file names end beyond the log");
        let names = names.checked(file_bytes).ok_or_else(outside)?;
        // The job record begins behind the header and ends where the next region begins.
        let first = modules.first().map(|region| region.extent.offset);
        let end = match names.offset {
            0 => first.unwrap_or(file_bytes),
            names => names,
        };
        let Some(job_bytes) = end.checked_sub(length) else {
            return Err(invalid(
                flags_at as u64,
                format!("a region begins at byte {end}, in the header"),
            ));
        };
        Ok(Header {
            version,
            is_big_endian: order == ByteOrder::Big,
            compression,
            modules,
            order,
            job: Extent { offset: length, bytes: job_bytes },
            names,
        })
    }
}

/// The version, which is text as `3.21`.
fn version(bytes: &[u8]) -> Result<Version, LogError> {
    let field = bytes.get(..8).unwrap_or(bytes);
    let text = crate::fields::text(field);
    let numbers = text.split_once('.').and_then(|(major, minor)| {
        Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? })
    });
    match numbers {
        Some(version) if version.major == 3 && version.minor <= 41 => Ok(version),
        Some(Version { major, minor }) => Err(invalid(
            0,
            format!(
                "the format is {major}.{minor:02}; 3.00 to 3.41 can be read (Darshan 3.0 to 3.5)"
            ),
        )),
        None => Err(invalid(0, "not a Darshan log: no version such as 3.21 at its begin")),
    }
}
