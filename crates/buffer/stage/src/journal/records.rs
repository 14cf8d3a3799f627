//! The records of a journal, and their lines.

use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use forebay_protocol::Timestamp;
use forebay_protocol::progress::ShareTally;

use crate::end::FileStat;

/// The digest of contents that were not hashed.
pub const NO_DIGEST: &str = "-";

/// A file or a part of one: path, and part number if it is large.
pub type Key = (PathBuf, Option<u64>);

/// Identifies the contents that were copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub size: u64,
    /// Modification time of the source, in nanoseconds since 1970. A program that rewrote the file
    /// may have set this time back.
    pub modified_ns: i128,
    /// Status change time of the source, in nanoseconds since 1970. Programs cannot set it.
    pub changed_ns: i128,
    pub digest: String,
}

impl Copied {
    /// A copy of a source with these attributes.
    pub fn of(stat: &FileStat, digest: String) -> Copied {
        Copied {
            size: stat.size,
            modified_ns: nanoseconds(stat.modified),
            changed_ns: nanoseconds(stat.changed),
            digest,
        }
    }

    /// Whether a source with these attributes is the one that was copied.
    pub fn is_source(&self, source: &FileStat) -> bool {
        self.is_like_copy(source) && self.changed_ns == nanoseconds(source.changed)
    }

    /// Whether a file with these attributes may be the copy.
    pub fn is_like_copy(&self, copy: &FileStat) -> bool {
        (self.size, self.modified_ns) == (copy.size, nanoseconds(copy.modified))
    }

    /// The entry of a directory.
    fn created_dir() -> Copied {
        Copied { size: 0, modified_ns: 0, changed_ns: 0, digest: NO_DIGEST.to_owned() }
    }
}

/// A share of a stage whose copies are on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteShare {
    /// The key of the attempt.
    pub key: u64,
    pub tally: ShareTally,
    /// Files and links that it has copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The valid records of a journal.
#[derive(Debug, Default)]
pub struct Contents {
    pub recorded: BTreeMap<Key, Copied>,
    pub share: Option<CompleteShare>,
    pub complete: bool,
}

/// Nanoseconds since 1970.
fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// The valid records of a journal; none if it has another header.
pub fn parse_journal(text: &str, header: &str) -> Contents {
    let mut contents = Contents::default();
    let Contents { recorded, share, complete } = &mut contents;
    let mut unsynced: Vec<(Key, Copied)> = Vec::new();
    let Some(text) = text.strip_prefix(header) else {
        return contents;
    };
    for line in text.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        match line {
            "Y" => recorded.extend(unsynced.drain(..)),
            "N" => unsynced.clear(),
            "C" => *complete = true,
            _ if line.starts_with("B ") => match parse_share(line) {
                Some(parsed) => *share = Some(parsed),
                None => break,
            },
            _ => match (parse_entry(line), parse_path(line, "D "), parse_path(line, "M ")) {
                (Some(entry), ..) => unsynced.push(entry),
                (None, Some(path), _) => {
                    let stays = |key: &Key| key.0 != path || key.1.is_none();
                    recorded.retain(|key, _| stays(key));
                    unsynced.retain(|(key, _)| stays(key));
                }
                (None, None, Some(path)) => {
                    recorded.insert((path, None), Copied::created_dir());
                }
                (None, None, None) => break,
            },
        }
    }
    contents
}

pub fn format_share(share: &CompleteShare) -> String {
    let CompleteShare { key, tally, files, bytes } = share;
    let ShareTally { seen, entries, own, created, problems } = tally;
    assert_eq!(*problems, 0, "a complete share has no problems");
    let created = u8::from(*created);
    format!("B {key} {seen} {entries} {own} {created} {files} {bytes}\n")
}

fn parse_share(line: &str) -> Option<CompleteShare> {
    let numbers = line.strip_prefix("B ")?.split(' ').map(|word| word.parse().ok());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let [key, seen, entries, own, created, files, bytes] = numbers.try_into().ok()?;
    let tally = ShareTally { seen, entries, own, created: created != 0, problems: 0 };
    Some(CompleteShare { key, tally, files, bytes })
}

pub fn format_entry(path: &Path, part: Option<u64>, copied: &Copied) -> String {
    let Copied { size, modified_ns, changed_ns, digest } = copied;
    let path = encode_path(path);
    match part {
        None => format!("F {size} {modified_ns} {changed_ns} {digest} {path}\n"),
        Some(part) => format!("S {part} {size} {modified_ns} {changed_ns} {digest} {path}\n"),
    }
}

fn parse_entry(line: &str) -> Option<(Key, Copied)> {
    let mut words = line.split(' ');
    let part = match words.next()? {
        "F" => None,
        "S" => Some(words.next()?.parse().ok()?),
        _ => return None,
    };
    let copied = Copied {
        size: words.next()?.parse().ok()?,
        modified_ns: words.next()?.parse().ok()?,
        changed_ns: words.next()?.parse().ok()?,
        digest: words.next()?.to_owned(),
    };
    let path = decode_path(words.next()?)?;
    words.next().is_none().then_some(((path, part), copied))
}

/// The path of a line that starts with `prefix`.
fn parse_path(line: &str, prefix: &str) -> Option<PathBuf> {
    decode_path(line.strip_prefix(prefix)?)
}

/// Encodes all bytes that are not printable ASCII, and `%`, as `%` and two hexadecimal digits.
pub fn encode_path(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && *byte != b'%' {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02x}"));
        }
    }
    debug_assert!(decode_path(&text).as_deref() == Some(path));
    text
}

fn decode_path(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(byte) = rest.next() {
        if *byte == b'%' {
            let digits = [*rest.next()?, *rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(*byte);
        }
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}
