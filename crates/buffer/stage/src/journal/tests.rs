use super::*;
use forebay_protocol::progress::ShareTally;

fn copied(size: u64) -> Copied {
    Copied { size, modified_ns: -5, changed_ns: 7, digest: "ab".into() }
}

fn open(directory: &tempfile::TempDir, stage: &str) -> Journal {
    let host: Arc<dyn JournalHost> = Arc::new(Os);
    Journal::open(&host, &directory.path().join("journal"), stage, None).unwrap()
}

fn open_share(directory: &tempfile::TempDir, attempt: u64) -> Journal {
    let host: Arc<dyn JournalHost> = Arc::new(Os);
    Journal::open(&host, &directory.path().join("journal"), "s", Some(attempt)).unwrap()
}

fn is_recorded(journal: &Journal, path: &str, part: Option<u64>) -> bool {
    journal.recorded(Path::new(path), part).is_some()
}

#[test]
fn only_complete_synced_lines_count() {
    let odd = Path::new("a b/%\n\u{e9}");
    let header = format!("{FORMAT} s\n");
    let mut text = header.clone();
    text.push_str(&format_entry(odd, None, &copied(1)));
    text.push_str("Y\n");
    text.push_str(&format_entry(Path::new("c"), Some(3), &copied(2)));
    text.push_str("M 7/\n");
    text.push_str("F 12 0 0 ab d");
    let Contents { recorded, complete, .. } = parse_journal(&text, &header);
    assert!(!complete);
    assert_eq!(recorded.len(), 2);
    assert_eq!(recorded[&(odd.to_owned(), None)], copied(1));
    assert!(recorded.contains_key(&(PathBuf::from("7/"), None)));
    let recorded = parse_journal(&text.replace("M 7/", "Y"), &header).recorded;
    assert_eq!(recorded[&(PathBuf::from("c"), Some(3))], copied(2));
    assert!(parse_journal(&text, &format!("{FORMAT} other\n")).recorded.is_empty());
    assert!(parse_journal("noise", &header).recorded.is_empty());
}

#[test]
fn unsynced_entries_are_void_for_all_later_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = Path::new("x");
    let journal = open(&directory, "s");
    journal.record_created_dir(Path::new("0/")).unwrap();
    journal.add(path, Some(0), &copied(1)).unwrap();
    journal.record_sync(|| Ok(())).unwrap();
    journal.add(path, Some(1), &copied(1)).unwrap();
    drop(journal);
    for _ in 0..2 {
        let journal = open(&directory, "s");
        assert!(is_recorded(&journal, "x", Some(0)) && !is_recorded(&journal, "x", Some(1)));
        assert!(is_recorded(&journal, "0/", None) && journal.is_resumed());
    }
}

#[test]
fn failed_sync_voids_the_entries_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory, "s");
    journal.add(Path::new("safe"), None, &copied(1)).unwrap();
    journal.record_sync(|| Ok(())).unwrap();
    journal.add(Path::new("gone"), None, &copied(2)).unwrap();
    let failed = Problem::new("", "unreachable", rustix::io::Errno::IO);
    assert!(journal.record_sync(|| Err(failed)).is_err());
    journal.add(Path::new("new"), None, &copied(3)).unwrap();
    journal.record_sync(|| Ok(())).unwrap();
    drop(journal);
    let journal = open(&directory, "s");
    let recorded = ["safe", "gone", "new"].map(|name| is_recorded(&journal, name, None));
    assert_eq!(recorded, [true, false, true]);
}

#[test]
fn voided_parts_do_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let path = Path::new("x");
    let journal = open(&directory, "s");
    journal.add(path, Some(0), &copied(1)).unwrap();
    journal.add(path, Some(1), &copied(1)).unwrap();
    journal.add(Path::new("xy"), Some(1), &copied(1)).unwrap();
    journal.record_sync(|| Ok(())).unwrap();
    drop(journal);
    let journal = open(&directory, "s");
    journal.void_parts(path).unwrap();
    journal.add(path, Some(0), &copied(1)).unwrap();
    journal.record_sync(|| Ok(())).unwrap();
    drop(journal);
    let journal = open(&directory, "s");
    let parts = [("x", 0), ("x", 1), ("xy", 1)];
    let recorded = parts.map(|(name, part)| is_recorded(&journal, name, Some(part)));
    assert_eq!(recorded, [true, false, true]);
}

#[test]
fn reopened_journal_has_its_entries_and_completion() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory, "s");
    journal.add(Path::new("x"), None, &copied(7)).unwrap();
    journal.record_sync(|| Ok(())).unwrap();
    assert_eq!(open(&directory, "s").recorded(Path::new("x"), None), Some(&copied(7)));
    assert!(!open(&directory, "s").is_complete());
    journal.record_completion().unwrap();
    assert!(!is_recorded(&open(&directory, "t"), "x", None));
}

#[test]
fn complete_share_counts_in_later_runs_of_its_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open_share(&directory, 5);
    journal.add(Path::new("x"), None, &copied(1)).unwrap();
    journal.record_sync(|| Ok(())).unwrap();
    let tally = ShareTally { seen: u64::MAX, entries: 2, own: 3, created: true, problems: 0 };
    let share = CompleteShare { key: 5, tally, files: 1, bytes: 7 };
    journal.record_share(&share).unwrap();
    for _ in 0..2 {
        let journal = open_share(&directory, 5);
        assert_eq!(journal.complete_share(), Some(&share));
        assert!(is_recorded(&journal, "x", None) && !journal.is_complete());
    }
    open_share(&directory, 5).record_completion().unwrap();
    assert!(open_share(&directory, 5).is_complete());
    let journal = open_share(&directory, 6);
    assert!(journal.complete_share().is_none() && !journal.is_complete());
    assert!(is_recorded(&journal, "x", None));
}

/// A disk that has space for so many more bytes.
#[derive(Clone, Debug)]
struct SmallDisk(Arc<Mutex<usize>>);

struct SmallFile(SmallDisk, Box<dyn AppendFile>);

impl SmallDisk {
    fn take(&self, bytes: usize) -> io::Result<()> {
        let mut left = self.0.lock();
        *left = left.checked_sub(bytes).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }
}

impl JournalHost for SmallDisk {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        Os.read(path)
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn AppendFile>> {
        self.take(contents.len())?;
        Ok(Box::new(SmallFile(self.clone(), Os.replace(path, contents)?)))
    }

    fn empty(&self, path: &Path) -> io::Result<()> {
        Os.empty(path)
    }

    fn now(&self) -> Instant {
        Os.now()
    }
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.take(bytes.len())?;
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush()
    }
}

impl AppendFile for SmallFile {
    fn sync(&self) -> io::Result<()> {
        self.1.sync()
    }
}

#[test]
fn without_space_a_run_goes_on_and_nothing_wrong_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = Path::new("x");
    let before = || {
        let journal = open(&directory, "s");
        journal.add(path, Some(0), &copied(1)).unwrap();
        journal.record_sync(|| Ok(())).unwrap();
    };
    let mut recording = Vec::new();
    for space in 0..400 {
        before();
        let host: Arc<dyn JournalHost> = Arc::new(SmallDisk(Arc::new(Mutex::new(space))));
        let journal = Journal::open(&host, &directory.path().join("journal"), "s", None).unwrap();
        assert!(is_recorded(&journal, "x", Some(0)), "the earlier run is known");
        // The file is started over: its part must not count any more.
        journal.void_parts(path).unwrap();
        journal.record_created_dir(Path::new("0/")).unwrap();
        journal.add(Path::new("y"), None, &copied(2)).unwrap();
        journal.record_sync(|| Ok(())).unwrap();
        journal.add(Path::new("z"), None, &copied(3)).unwrap();
        recording.push(journal.is_recording());
        drop(journal);
        let journal = open(&directory, "s");
        assert!(journal.is_resumed() && !is_recorded(&journal, "x", Some(0)));
        assert_eq!(is_recorded(&journal, "y", None), recording[space]);
        assert!(!is_recorded(&journal, "z", None));
    }
    assert!(!recording[0] && recording[399]);
}
