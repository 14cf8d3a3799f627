//! A stage's journal: what is copied already, so that an interrupted stage goes on.
//!
//! A text file. The first line names the format and the stage; then one line for each file (`F`),
//! part of a large file (`S`), point up to which everything is on stable storage (`Y`), directory
//! that the stage has made as a target (`M`), large file that is begun anew, so that parts noted
//! before do not count (`D`), point up to which not everything could be put on stable storage (`N`:
//! what follows the last `Y` may be gone), and the end (`C`). A last line without its end was being
//! written and does not count.
//!
//! Of files and parts only those before the last `Y` count for another run, also if this host has not
//! been started anew since: a server of the parallel file system may have been, and what it has
//! forgotten it tells those who had it open then, and nobody later.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::end::FileStat;
use crate::error::Problem;

const FORMAT: &str = "forebay-stage-3";

/// A file or a part of one: path, and part number if it is large.
type Key = (PathBuf, Option<u64>);

/// What identifies the contents that were copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub size: u64,
    /// When the source's contents changed, and when anything about it did, in nanoseconds since 1970:
    /// who has rewritten it may have set the former back, but not the latter.
    pub modified: i128,
    pub changed: i128,
    pub digest: String,
}

impl Copied {
    /// What a file with this state and checksum is known by.
    pub fn of(state: &FileStat, digest: String) -> Copied {
        Copied {
            size: state.size,
            modified: state.modified.nanoseconds_since_1970(),
            changed: state.changed.nanoseconds_since_1970(),
            digest,
        }
    }

    /// Whether a source with this state is what was copied.
    pub fn is_of(&self, source: &FileStat) -> bool {
        self.is_like(source) && self.changed == source.changed.nanoseconds_since_1970()
    }

    /// Whether a copy with this state may be what was made of it.
    pub fn is_like(&self, copy: &FileStat) -> bool {
        let modified = copy.modified.nanoseconds_since_1970();
        (self.size, self.modified) == (copy.size, modified)
    }

    /// What stands for a directory.
    fn made() -> Copied {
        Copied {
            size: 0,
            modified: 0,
            changed: 0,
            digest: "-".to_owned(),
        }
    }
}

/// The host of a mover: the disk that journals lie on, and the time. A simulation takes the place
/// of it.
pub trait JournalHost: fmt::Debug + Send + Sync {
    /// All of a file; `None` if there is none.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Puts a file in the place of what is there, as a whole and durably, to be added to.
    fn replace(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn AppendFile>>;
    /// The time on a clock that is never set.
    fn now(&self) -> Instant;
}

/// A file that is added to.
pub trait AppendFile: Write + Send {
    /// Puts what was written on stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl JournalHost for Os {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn AppendFile>> {
        let temporary = path.with_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(&temporary)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        Ok(Box::new(file))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

impl AppendFile for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

pub(crate) struct Journal {
    path: PathBuf,
    known: BTreeMap<Key, Copied>,
    complete: bool,
    goes_on: bool,
    writer: Mutex<BufWriter<Box<dyn AppendFile>>>,
}

impl Journal {
    /// Opens the journal of the stage with this name; one of another stage is begun anew.
    pub fn open(host: &Arc<dyn JournalHost>, path: &Path, stage: &str) -> Result<Journal, Problem> {
        let problem = |error: std::io::Error| Problem {
            path: path.to_owned(),
            reason: format!("the journal cannot be used: {error}"),
            code: error.raw_os_error().unwrap_or(libc::EIO),
        };
        let header = format!("{FORMAT} {stage}\n");
        let bytes = host.read(path).map_err(problem)?;
        let goes_on = bytes.is_some();
        // What is not text is not read as a journal either.
        let text = String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default();
        let (known, complete) = read(&text, &header);
        // Written anew: what counts, without what does not.
        let mut contents = header;
        for ((path, part), copied) in &known {
            contents.push_str(&line(path, *part, copied));
        }
        contents.push_str(if complete { "Y\nC\n" } else { "Y\n" });
        let pages = host.replace(path, contents.as_bytes()).map_err(problem)?;
        Ok(Journal {
            path: path.to_owned(),
            known,
            complete,
            goes_on,
            writer: Mutex::new(BufWriter::new(pages)),
        })
    }

    /// Whether the stage was done.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether an earlier run may have left something.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// What an earlier run noted.
    pub fn known(&self, path: &Path, part: Option<u64>) -> Option<&Copied> {
        self.known.get(&(path.to_owned(), part))
    }

    /// Notes a copied file or part. It counts for another run from the next [`Journal::synced`] on.
    pub fn add(&self, path: &Path, part: Option<u64>, copied: &Copied) -> Result<(), Problem> {
        let outcome = self.writer().write_all(line(path, part, copied).as_bytes());
        outcome.map_err(|error| self.problem(&error))
    }

    /// The stage has made this directory, which is its to finish. Counts at once.
    pub fn has_made(&self, path: &Path) -> Result<(), Problem> {
        self.put(&mut self.writer(), &format!("M {}\n", encode(path)))
    }

    /// A large file is begun anew: what was noted of its parts does not count any more.
    pub fn begin_anew(&self, path: &Path) -> Result<(), Problem> {
        let first = (path.to_owned(), Some(0));
        let last = (path.to_owned(), Some(u64::MAX));
        if self.known.range(first..=last).next().is_none() {
            return Ok(());
        }
        self.put(&mut self.writer(), &format!("D {}\n", encode(path)))
    }

    /// Puts everything noted so far on stable storage with `sync`, and notes that. Nothing is
    /// noted meanwhile: `sync` might miss it.
    pub fn synced(&self, sync: impl FnOnce() -> Result<(), Problem>) -> Result<(), Problem> {
        let mut writer = self.writer();
        if let Err(problem) = sync() {
            // A file system that has lost something says so once.
            let _ = self.put(&mut writer, "N\n");
            return Err(problem);
        }
        self.put(&mut writer, "Y\n")
    }

    /// Notes that the stage is done.
    pub fn complete(&self) -> Result<(), Problem> {
        self.put(&mut self.writer(), "C\n")
    }

    fn writer(&self) -> MutexGuard<'_, BufWriter<Box<dyn AppendFile>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line, and puts it and all before it on stable storage.
    fn put(&self, writer: &mut BufWriter<Box<dyn AppendFile>>, line: &str) -> Result<(), Problem> {
        let written = writer.write_all(line.as_bytes());
        let written = written.and_then(|()| writer.flush());
        let durable = written.and_then(|()| writer.get_ref().sync());
        durable.map_err(|error| self.problem(&error))
    }

    fn problem(&self, error: &std::io::Error) -> Problem {
        let reason = format!("the journal cannot be written: {error}");
        Problem {
            path: self.path.clone(),
            reason,
            code: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

fn read(text: &str, header: &str) -> (BTreeMap<Key, Copied>, bool) {
    let mut known = BTreeMap::new();
    let mut unsure: Vec<(Key, Copied)> = Vec::new();
    let mut complete = false;
    let Some(text) = text.strip_prefix(header) else {
        return (known, false);
    };
    for line in text.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        match line {
            "Y" => known.extend(unsure.drain(..)),
            "N" => unsure.clear(),
            "C" => complete = true,
            _ => match (parse(line), named(line, "D "), named(line, "M ")) {
                (Some(record), ..) => unsure.push(record),
                (None, Some(path), _) => {
                    let stays = |key: &Key| key.0 != path || key.1.is_none();
                    known.retain(|key, _| stays(key));
                    unsure.retain(|(key, _)| stays(key));
                }
                (None, None, Some(path)) => drop(known.insert((path, None), Copied::made())),
                (None, None, None) => break,
            },
        }
    }
    (known, complete)
}

fn line(path: &Path, part: Option<u64>, copied: &Copied) -> String {
    let Copied {
        size,
        modified,
        changed,
        digest,
    } = copied;
    let path = encode(path);
    match part {
        None => format!("F {size} {modified} {changed} {digest} {path}\n"),
        Some(part) => format!("S {part} {size} {modified} {changed} {digest} {path}\n"),
    }
}

fn parse(line: &str) -> Option<(Key, Copied)> {
    let mut words = line.split(' ');
    let part = match words.next()? {
        "F" => None,
        "S" => Some(words.next()?.parse().ok()?),
        _ => return None,
    };
    let copied = Copied {
        size: words.next()?.parse().ok()?,
        modified: words.next()?.parse().ok()?,
        changed: words.next()?.parse().ok()?,
        digest: words.next()?.to_owned(),
    };
    let path = decode(words.next()?)?;
    words.next().is_none().then_some(((path, part), copied))
}

/// What a line that begins with `what` is about.
fn named(line: &str, what: &str) -> Option<PathBuf> {
    decode(line.strip_prefix(what)?)
}

/// Printable bytes as they are, all others and `%` as `%` and two hexadecimal digits.
fn encode(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && *byte != b'%' {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02x}"));
        }
    }
    text
}

fn decode(text: &str) -> Option<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(size: u64) -> Copied {
        Copied {
            size,
            modified: -5,
            changed: 7,
            digest: "ab".into(),
        }
    }

    #[test]
    fn only_whole_lines_that_were_made_sure_of_count() {
        let odd = Path::new("a b/%\n\u{e9}");
        let header = format!("{FORMAT} s\n");
        let mut text = header.clone();
        text.push_str(&line(odd, None, &copied(1)));
        text.push_str("Y\n");
        text.push_str(&line(Path::new("c"), Some(3), &copied(2)));
        text.push_str("M 7/\n");
        text.push_str("F 12 0 0 ab d");
        let (known, complete) = read(&text, &header);
        assert!(!complete);
        assert_eq!(known.len(), 2);
        assert_eq!(known[&(odd.to_owned(), None)], copied(1));
        assert!(known.contains_key(&(PathBuf::from("7/"), None)));
        let (known, _) = read(&text.replace("M 7/", "Y"), &header);
        assert_eq!(known[&(PathBuf::from("c"), Some(3))], copied(2));
        assert!(read(&text, &format!("{FORMAT} other\n")).0.is_empty());
        assert!(read("noise", &header).0.is_empty());
    }

    #[test]
    fn what_nobody_made_sure_of_does_not_count_for_the_next_run_nor_the_one_after() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("journal");
        let host: Arc<dyn JournalHost> = Arc::new(Os);
        let path = Path::new("x");
        let journal = Journal::open(&host, &file, "s").unwrap();
        journal.has_made(Path::new("0/")).unwrap();
        journal.add(path, Some(0), &copied(1)).unwrap();
        journal.synced(|| Ok(())).unwrap();
        journal.add(path, Some(1), &copied(1)).unwrap();
        drop(journal);
        for _ in 0..2 {
            let journal = Journal::open(&host, &file, "s").unwrap();
            let is_known = |part| journal.known(path, Some(part)).is_some();
            assert!(is_known(0) && !is_known(1) && journal.goes_on());
            assert!(journal.known(Path::new("0/"), None).is_some());
        }
    }

    #[test]
    fn what_could_not_be_put_on_stable_storage_is_copied_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("journal");
        let host: Arc<dyn JournalHost> = Arc::new(Os);
        let journal = Journal::open(&host, &file, "s").unwrap();
        journal.add(Path::new("safe"), None, &copied(1)).unwrap();
        journal.synced(|| Ok(())).unwrap();
        journal.add(Path::new("gone"), None, &copied(2)).unwrap();
        let failed = Problem::new("", "it is away", rustix::io::Errno::IO);
        assert!(journal.synced(|| Err(failed)).is_err());
        journal.add(Path::new("new"), None, &copied(3)).unwrap();
        journal.synced(|| Ok(())).unwrap();
        drop(journal);
        let journal = Journal::open(&host, &file, "s").unwrap();
        let is_known = |name| journal.known(Path::new(name), None).is_some();
        assert_eq!(["safe", "gone", "new"].map(is_known), [true, false, true]);
    }

    #[test]
    fn parts_of_a_file_that_was_begun_anew_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("journal");
        let host: Arc<dyn JournalHost> = Arc::new(Os);
        let path = Path::new("x");
        let journal = Journal::open(&host, &file, "s").unwrap();
        journal.add(path, Some(0), &copied(1)).unwrap();
        journal.add(path, Some(1), &copied(1)).unwrap();
        journal.add(Path::new("xy"), Some(1), &copied(1)).unwrap();
        journal.synced(|| Ok(())).unwrap();
        drop(journal);
        let journal = Journal::open(&host, &file, "s").unwrap();
        journal.begin_anew(path).unwrap();
        journal.add(path, Some(0), &copied(1)).unwrap();
        journal.synced(|| Ok(())).unwrap();
        drop(journal);
        let journal = Journal::open(&host, &file, "s").unwrap();
        let is_known = |name, part| journal.known(Path::new(name), Some(part)).is_some();
        assert!(is_known("x", 0) && !is_known("x", 1) && is_known("xy", 1));
    }

    #[test]
    fn a_journal_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("journal");
        let host: Arc<dyn JournalHost> = Arc::new(Os);
        let journal = Journal::open(&host, &file, "s").unwrap();
        journal.add(Path::new("x"), None, &copied(7)).unwrap();
        journal.synced(|| Ok(())).unwrap();
        assert_eq!(
            Journal::open(&host, &file, "s")
                .unwrap()
                .known(Path::new("x"), None),
            Some(&copied(7))
        );
        assert!(!Journal::open(&host, &file, "s").unwrap().is_complete());
        journal.complete().unwrap();
        assert!(
            Journal::open(&host, &file, "t")
                .unwrap()
                .known(Path::new("x"), None)
                .is_none()
        );
    }
}
