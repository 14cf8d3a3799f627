//! Opening and closing of a file, and collective calls that change what it is.

use super::background::ClosedFile;
use super::log_mapping::{self, CreatedLog};
use super::settle::Settled;
use super::shared_pointer::SharedPointer;
use super::sources::Logs;
use super::view::FileView;
use super::write::AGREEMENT;
use super::{FileId, LoggedFile, background, left, report};
use crate::mpi::communicator::{Communicator, check};
use crate::mpi::{
    Handle, MODE_APPEND, MODE_DELETE_ON_CLOSE, MODE_WRONLY, MpiError, functions, library,
};
use crate::selection::{Flush, Settings, select};
use crate::statistics::{self, Counters};
use forebay_mpiio_log::{
    FileIdentity, Identity, Index, Left, ReplayError, ReplayOptions, discard_of_removed, replay,
};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file that a process has opened, before it is known whether the others could do so.
struct Opened {
    log: CreatedLog,
    target: File,
    id: FileId,
}

/// Directories of logs that this process has used.
static DIRECTORIES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Files that were opened and are logged.
static OPENED: AtomicU64 = AtomicU64::new(0);

impl LoggedFile {
    /// Begins to log the writes to a file that the MPI library has opened, if it is selected.
    /// Collective. `None` also if a process cannot create its log, which it reports.
    pub fn attach(
        handle: Handle,
        comm: Handle,
        path: &Path,
        mode: i32,
        hints: Handle,
    ) -> Result<Option<LoggedFile>, MpiError> {
        let program = Communicator::of(comm)?;
        let mut message = Vec::new();
        if program.rank == 0
            && let Some(settings) = select(path, hints)
        {
            left::discard_of_unnamed();
            recover(path, &settings.directory);
            let run = run();
            message.extend((run.len() as u64).to_le_bytes());
            message.extend(run.as_bytes());
            message.extend(settings.encode());
        }
        let message = program.broadcast_string(message, 0)?;
        let Some((run, mut settings)) = parse(&message) else { return Ok(None) };
        DIRECTORIES.lock().insert(settings.directory.clone());
        let comm = program.duplicate()?;
        let opened = open(&comm, path, mode, &run, &mut settings)?;
        let own = match &opened {
            Ok(opened) => opened.log.writer.path().as_os_str().as_bytes(),
            Err(error) => {
                report(path, "log the writes to", error);
                &[]
            }
        };
        let paths = comm.gather_all(own)?;
        let opened = match opened {
            Ok(opened) if paths.iter().all(|path| !path.is_empty()) => opened,
            refused => {
                // Another process has no log; it has reported that.
                let removed = refused.map(|opened| opened.log.discard());
                if let Ok(Err(error)) = removed {
                    report(path, "remove the log of", &error);
                }
                comm.free();
                return Ok(None);
            }
        };
        let paths: Vec<PathBuf> =
            paths.into_iter().map(|path| PathBuf::from(OsStr::from_bytes(&path))).collect();
        let sees = |path: Option<&PathBuf>| path.is_some_and(|path| path.exists());
        let apart = !(sees(paths.first()) && sees(paths.last()));
        let [apart] = comm.max([u64::from(apart)])?;
        let mut file = LoggedFile::new(handle, comm, path, mode, settings, opened, paths);
        file.readable = apart == 0;
        if mode & MODE_APPEND != 0 {
            file.position = file.size()?;
        }
        file.shared = SharedPointer::new(file.common_path(&run, "shared_pointer"), file.position);
        file.settled = Settled::new(file.common_path(&run, "settled"));
        Ok(Some(file))
    }

    fn new(
        handle: Handle,
        comm: Communicator,
        path: &Path,
        mode: i32,
        settings: Settings,
        opened: Opened,
        paths: Vec<PathBuf>,
    ) -> LoggedFile {
        LoggedFile {
            handle,
            world: comm.is_world(),
            comm,
            path: path.to_owned(),
            mode,
            settings,
            target: Arc::new(opened.target),
            id: opened.id,
            opening: OPENED.fetch_add(1, Ordering::Relaxed),
            view: FileView::initial(),
            library_view: None,
            position: 0,
            shared: SharedPointer::new(PathBuf::new(), 0),
            atomic: false,
            writer: opened.log.writer,
            owns_log: opened.log.owned,
            logs: Logs::new(paths),
            readable: false,
            index: Index::new(),
            exchanged: 0,
            exchange_epoch: 0,
            in_file: Vec::new(),
            joined: 0,
            joined_runs: 0,
            known_end: 0,
            epoch: 0,
            collective_writes: 0,
            emptied_at: 0,
            next_agreement: AGREEMENT.0,
            unsynced: false,
            synced: false,
            opened_twice: false,
            settled: Settled::default(),
            split: None,
            counters: Counters { opened: 1, ..Counters::default() },
        }
    }

    /// A file of all processes. It is next to the logs if all see that directory, otherwise next to the
    /// file.
    fn common_path(&self, run: &str, what: &str) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let directory = if self.readable {
            self.settings.directory.as_path()
        } else {
            self.path.parent().unwrap_or(Path::new("/"))
        };
        directory.join(format!(".{name}.{run}.{what}"))
    }

    /// Ends the logging of a file that is about to be closed. Collective. Returns the log that is to
    /// be applied when it is closed, if any. `has_alias`: this process keeps a handle that it has
    /// alone.
    pub fn close(mut self, has_alias: bool) -> Result<Option<ClosedFile>, MpiError> {
        let result = if self.mode & MODE_DELETE_ON_CLOSE != 0 {
            self.comm.barrier()
        } else {
            match self.flush_at_close(has_alias) {
                Ok(Flush::Background) if self.world && self.readable => {
                    return background::prepare(self);
                }
                Ok(Flush::StageOut) if self.world => {
                    return self.leave_to_movers().map(|()| None);
                }
                Ok(Flush::Close | Flush::Background | Flush::StageOut) => self.flush(),
                Err(error) => Err(error),
            }
        };
        self.end(result, CreatedLog::discard).map(|()| None)
    }

    /// When the log is applied. The data must be in the file at once if another handle may read it or
    /// write over it. Collective.
    fn flush_at_close(&self, has_alias: bool) -> Result<Flush, MpiError> {
        if self.settings.flush == Flush::Close {
            return Ok(Flush::Close);
        }
        // What is written to a file without a name is not for the movers either.
        let is_removed = self.target.metadata().is_ok_and(|found| found.nlink() == 0);
        let [twice] = self.comm.max([u64::from(self.opened_twice || has_alias || is_removed)])?;
        Ok(if twice == 0 { self.settings.flush } else { Flush::Close })
    }

    /// Completes a log that the movers of the burst buffer will apply. Collective. If a process cannot
    /// complete its log, or has written past it, all apply theirs at once.
    fn leave_to_movers(mut self) -> Result<(), MpiError> {
        let completed = self.writer.complete();
        if let Err(error) = &completed {
            self.failed("leave the log to the stage-out, so that it is applied now, for", error);
        }
        // What is durable in a log must be so in the file before the log is released.
        self.synced = true;
        let must_flush = u64::from(!self.in_file.is_empty() || completed.is_err());
        match self.comm.max([must_flush]) {
            Ok([0]) => {
                // One process removes all logs, if it sees them.
                if self.comm.rank == 0 && self.readable {
                    left::keep(&self.path, &self.settings.directory, Arc::clone(&self.target));
                }
                self.end(Ok(()), |_| Ok(()))
            }
            Ok(_) => {
                let result = self.flush();
                self.end(result, CreatedLog::discard)
            }
            Err(error) => self.end(Err(error), |_| Ok(())),
        }
    }

    /// Removes what belongs to an open file. After a failure the log stays.
    pub(super) fn end(
        self,
        result: Result<(), MpiError>,
        finish: impl FnOnce(CreatedLog) -> io::Result<()>,
    ) -> Result<(), MpiError> {
        let LoggedFile { comm, path, writer, owns_log, shared, settled, counters, .. } = self;
        remove_common_files(&comm, &shared, &settled);
        comm.free();
        statistics::add(&path, counters);
        match result {
            Ok(()) => finish(CreatedLog { writer, owned: owns_log })
                .map_err(|error| report(&path, "end the log of", &error)),
            Err(error) => {
                let directory = writer.path().parent().unwrap_or(Path::new("/")).display();
                eprintln!(
                    "forebay: the log of {} stays; 'forebay log replay {directory}' applies it",
                    path.display()
                );
                Err(error)
            }
        }
    }

    /// Takes what a flush after the close needs, and releases the rest.
    pub(super) fn into_background(self) -> ClosedFile {
        let LoggedFile {
            comm,
            path,
            id,
            settings,
            writer,
            logs,
            index,
            target,
            shared,
            settled,
            ..
        } = self;
        let (rank, ranks) = (comm.rank, comm.size);
        remove_common_files(&comm, &shared, &settled);
        comm.free();
        ClosedFile {
            path,
            id,
            rank,
            ranks,
            stripe: settings.alignment,
            writer,
            logs,
            index,
            target,
            synced: self.synced,
            epoch: self.epoch,
            counters: self.counters,
        }
    }

    /// `MPI_File_set_size`. Collective. The logs are applied before only if the new end cuts what they
    /// contain: libraries like HDF5 set the size before they close a file, and a flush in the background
    /// is to come after that.
    pub fn set_size(&mut self, size: u64) -> Result<(), MpiError> {
        self.advance();
        let [logged_end, epoch] = self.comm.max([self.known_end, self.epoch])?;
        self.agree(epoch);
        if size < logged_end {
            self.flush()?;
        }
        self.change_size(|file| file.set_len(size))
    }

    /// `MPI_File_preallocate`, which changes no data. Collective.
    pub fn preallocate(&mut self, size: u64) -> Result<(), MpiError> {
        self.advance();
        self.change_size(|file| preallocate(file, size))
    }

    /// Changes the size of the file, by the first rank.
    fn change_size(
        &mut self,
        change: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), MpiError> {
        let changed = if self.comm.rank == 0 { change(&self.target) } else { Ok(()) };
        if let Err(error) = &changed {
            self.failed("change the size of", error);
        }
        self.unsynced |= self.comm.rank == 0;
        let [failed, epoch] = self.comm.max([u64::from(changed.is_err()), self.epoch])?;
        self.agree(epoch);
        self.advance();
        if failed == 0 { Ok(()) } else { Err(MpiError(library().error_io)) }
    }

    /// `MPI_File_get_size`.
    pub fn visible_size(&self) -> Result<i64, MpiError> {
        Ok(i64::try_from(self.size()?).unwrap_or(i64::MAX))
    }

    /// `MPI_File_sync` of the MPI library, for what it has written.
    pub fn sync_through(&self) -> Result<(), MpiError> {
        if !self.is_through() {
            return Ok(());
        }
        // SAFETY: the handle is that of an open file.
        check(unsafe { functions::file_sync(self.handle) })
    }

    /// Whether two communicators have the same processes, in this order.
    pub fn has_processes_of(&self, comm: Handle) -> bool {
        self.comm.is_congruent(comm)
    }

    /// Applies the logs before the program opens the file again. Collective.
    pub fn flush_for_second_handle(&mut self) -> Result<(), MpiError> {
        self.opened_twice = true;
        self.flush()
    }

    /// Prepares for a second handle of other processes: what was synced must be in the file now, and
    /// each later sync reaches it.
    pub fn settle_for_second_handle(&mut self) -> Result<(), MpiError> {
        self.opened_twice = true;
        self.settle()
    }

    /// Notes that a second handle of the file exists.
    pub fn set_opened_twice(&mut self) {
        self.opened_twice = true;
    }

    /// Identity of the file.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The processes that opened it.
    pub fn communicator(&self) -> Communicator {
        self.comm.clone()
    }

    /// Number of files that this process opened before and logs: the same order on all processes
    /// that opened the same files together.
    pub fn opening(&self) -> u64 {
        self.opening
    }

    /// Access mode of `MPI_File_open`.
    pub fn mode(&self) -> i32 {
        self.mode
    }
}

/// Removes the files beside the logs that all processes of a file use, when none uses them any more.
fn remove_common_files(comm: &Communicator, shared: &SharedPointer, settled: &Settled) {
    if comm.rank == 0 {
        shared.remove();
        settled.remove();
    }
}

/// The identity of the file that a path names, if it has no other name.
pub fn last_name_of(path: &Path) -> Option<FileIdentity> {
    let found = std::fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.nlink() > 1 {
        return None;
    }
    FileIdentity::of(path)
}

/// Removes the logs of a file that was removed. A failure is reported; a replay finds that the logs
/// belong to another file.
pub fn discard_logs_of(path: &Path, removed: FileIdentity, hints: Handle) {
    // An earlier run may have been killed.
    let selected = select(path, hints).map(|settings| settings.directory);
    let used = DIRECTORIES.lock().clone();
    for directory in used.iter().chain(selected.iter().filter(|path| !used.contains(*path))) {
        if let Err(error) = discard_of_removed(directory, path, removed) {
            report(path, "discard the logs of", &error);
        }
    }
}

/// Allocates the first `size` bytes of a file, which becomes longer if it is shorter.
pub(super) fn preallocate(file: &File, size: u64) -> io::Result<()> {
    if size == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            let length = file.metadata()?.len();
            if length < size { file.set_len(size) } else { Ok(()) }
        }
        Err(error) => Err(error.into()),
    }
}

/// Brings what an earlier run has left in its logs into the file, before this one reads or writes it.
/// Otherwise the program would not find what it had synced, and a later replay would put that over
/// what is written now. Reports the logs that stay.
fn recover(path: &Path, logs: &Path) {
    let options = ReplayOptions {
        target: Some(path.to_owned()),
        complete_only: true,
        ..ReplayOptions::default()
    };
    let path = path.display();
    match replay(&[logs.to_owned()], &options) {
        Ok(runs) => {
            for run in runs {
                let (count, logs) = (run.logs, logs.display());
                match run.left {
                    None if run.entries == 0 => {}
                    None => eprintln!(
                        "forebay: {path}: applied {} writes of an earlier run from {count} logs",
                        run.entries
                    ),
                    Some(Left::Replaced | Left::Missing) => eprintln!(
                        "forebay: {path} was created after {count} logs of this name in {logs}; \
                         'forebay log discard {logs} --file {path}' removes them"
                    ),
                    Some(Left::Incomplete) => eprintln!(
                        "forebay: {path}: {count} logs of an earlier run in {logs} are not applied, \
                         because those of other processes are not there; 'forebay log replay' \
                         applies them before the program writes the file again"
                    ),
                }
            }
        }
        // The directory is reported when the log cannot be created.
        Err(ReplayError::Log { path: failed, .. }) if failed == logs => {}
        Err(error) => eprintln!("forebay: {path}: logs of an earlier run stay: {error}"),
    }
}

/// A name for one opening of a file, different from all others on all hosts.
fn run() -> String {
    static OPENINGS: AtomicU64 = AtomicU64::new(0);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!(
        "{}-{}-{:x}-{}",
        host.trim(),
        std::process::id(),
        time.as_nanos(),
        OPENINGS.fetch_add(1, Ordering::Relaxed)
    )
}

fn parse(message: &[u8]) -> Option<(String, Settings)> {
    let (length, rest) = message.split_first_chunk()?;
    let (run, settings) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    Some((String::from_utf8_lossy(run).into_owned(), Settings::decode(settings)?))
}

/// Opens the file itself, and creates the log of this process. Collective if the processes of a node
/// share a log.
fn open(
    comm: &Communicator,
    path: &Path,
    mode: i32,
    run: &str,
    settings: &mut Settings,
) -> Result<io::Result<Opened>, MpiError> {
    let target = open_target(path, mode);
    let limits = match &target {
        Ok(_) => log_mapping::limits(comm, settings),
        Err(_) => Err(io::Error::other("the file could not be opened")),
    };
    let identity = Identity {
        target: path.to_owned(),
        run: run.to_owned(),
        rank: comm.rank as u32,
        ranks: comm.size as u32,
    };
    let log = log_mapping::create(comm, &settings.directory, &identity, limits, settings.per_node)?;
    Ok(target.and_then(|(target, id)| Ok(Opened { log: log?, target, id })))
}

/// The file itself, for reading, too, if that is permitted: a flush reads what is between logged data.
fn open_target(path: &Path, mode: i32) -> io::Result<(File, FileId)> {
    let open = |read| OpenOptions::new().read(read).write(true).open(path);
    let target = match open(true) {
        Err(_) if mode & MODE_WRONLY != 0 => open(false),
        opened => opened,
    }?;
    let found = target.metadata()?;
    Ok((target, (found.dev(), found.ino())))
}
