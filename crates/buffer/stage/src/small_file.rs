//! Small files: read at once, and made at once where the target can do that.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use rustix::io::Errno;

use crate::copy::{Pieces, digest_of};
use crate::end::{DirHandle, FileStat, PutOutcome};
use crate::error::{Failure, Problem, describe};
use crate::file::{Destination, fatal, hidden_name};
use crate::journal::{Copied, Journal};
use crate::mover::{DirPair, StageContext};
use crate::request::Verify;
use crate::verify::CopyLocation;

/// Copies that are made sure of together.
const TOGETHER: usize = 512;

/// A copy that a storage node may still forget, although this host remembers having made it.
struct Copy {
    /// Which tree it is in.
    tree: usize,
    /// Its directory.
    parent: Arc<dyn DirHandle>,
    /// In the journal.
    key: PathBuf,
    copied: Copied,
}

/// Copies that are to be noted in the journal when they are on stable storage.
#[derive(Default)]
pub(crate) struct UnconfirmedCopies {
    waiting: Vec<Copy>,
    /// A storage node has forgotten some, and nobody knows which.
    lost: Option<Errno>,
}

impl StageContext<'_> {
    /// Copies a small file in one piece, as it was at one moment. `false`: it has to be opened to be
    /// copied.
    pub fn small(
        &self,
        here: &DirPair,
        seen: &FileStat,
        to: &Destination,
        whole: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let journal = self.journal.as_ref();
        // Of what an earlier run has copied more is to be looked at.
        let known = journal.is_some_and(|journal| journal.known(&to.key, None).is_some());
        if known || !seen.is_small() || seen.size > self.options.segment_bytes.max(1) {
            return Ok(false);
        }
        let fetched = here.source.read_small_file(&to.name, seen, whole);
        let Some(state) = fetched.map_err(|e| Failure::source("opening it", e))? else {
            return Ok(false);
        };
        if self.progress.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let digest = match self.options.verify {
            Verify::Off => "-".to_owned(),
            Verify::Checksum | Verify::ReadBack => digest_of(whole),
        };
        if journal.is_some_and(Journal::goes_on) {
            // What is left of it if that run made it step by step.
            let _ = to.parent.unlink(&hidden_name(&to.name));
        }
        let put = to.parent.put_small_file(&to.name, whole, &state);
        let put = put.map_err(|e| Failure::target("making its copy", e))?;
        if put == PutOutcome::Unsupported {
            step_by_step(&*to.parent, &to.name, whole, &state)?;
        }
        self.progress.staged_bytes(state.size);
        match put {
            PutOutcome::Unsynced => self.unsure(to, &state, digest.clone())?,
            PutOutcome::Stored | PutOutcome::Unsupported => {
                self.record(&to.key, None, &state, digest.clone())?
            }
        }
        self.count(&state);
        self.to_read_back(&to.at, [(Pieces::All(0, state.size), digest)]);
        self.sync_sometimes(state.size)?;
        Ok(true)
    }

    /// Has a copy noted in the journal when it is on stable storage.
    fn unsure(&self, to: &Destination, state: &FileStat, digest: String) -> Result<(), Failure> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let tree = match &to.at {
            CopyLocation::Tree { tree, .. } => tree.index,
            CopyLocation::Single(_) => 0,
        };
        let mut unsure = self.unsure.lock().unwrap_or_else(PoisonError::into_inner);
        unsure.waiting.push(Copy {
            tree,
            parent: to.parent.clone(),
            key: to.key.clone(),
            copied: Copied::of(state, digest),
        });
        if unsure.waiting.len() < TOGETHER {
            return Ok(());
        }
        settle(&mut unsure, journal).map_err(fatal)
    }

    /// Notes in the journal what was still to be made sure of.
    pub fn settle(&self) -> Result<(), Problem> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        settle(
            &mut self.unsure.lock().unwrap_or_else(PoisonError::into_inner),
            journal,
        )
    }
}

fn settle(unsure: &mut UnconfirmedCopies, journal: &Journal) -> Result<(), Problem> {
    let waiting = std::mem::take(&mut unsure.waiting);
    let mut trees: BTreeMap<usize, &Arc<dyn DirHandle>> = BTreeMap::new();
    for copy in &waiting {
        trees.entry(copy.tree).or_insert(&copy.parent);
    }
    // A node that has forgotten something says so once; what came before may be gone, too.
    let flushed = match unsure.lost {
        Some(errno) => Err(errno),
        None => trees.values().try_for_each(|folder| folder.syncfs()),
    };
    if let Err(errno) = flushed {
        unsure.lost = Some(errno);
        let reason = format!(
            "copies cannot be put on stable storage: {}",
            describe(errno)
        );
        return Err(Problem::new("", reason, errno));
    }
    for copy in waiting {
        journal.add(&copy.key, None, &copy.copied)?;
    }
    Ok(())
}

/// Makes a file under a hidden name, and gives it its own when it is whole.
fn step_by_step(
    parent: &dyn DirHandle,
    name: &OsStr,
    whole: &[u8],
    state: &FileStat,
) -> Result<(), Failure> {
    let hidden_name = hidden_name(name);
    let hidden = parent.create(&hidden_name, false);
    let hidden = hidden.map_err(|e| Failure::target("making its copy", e))?;
    let fill = || {
        let told = |what| move |errno| Failure::target(what, errno);
        hidden.write_all_at(whole, 0).map_err(told("writing it"))?;
        let taken = hidden.set_metadata(state, &mut || Ok(()));
        let _ = taken.map_err(told("setting its owner, permissions and times"))?;
        if hidden.needs_fdatasync() {
            hidden
                .fdatasync()
                .map_err(told("putting it on stable storage"))?;
        }
        let named = parent.rename(&hidden_name, name);
        named.map_err(told("giving its copy its name"))
    };
    let filled = fill();
    if filled.is_err() {
        let _ = parent.unlink(&hidden_name);
    }
    filled
}
