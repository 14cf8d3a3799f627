//! The stages of a job on one node: paths, mapping files, and copies with the user's permissions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_stage::end::{DirHandle, FileKind, FileSystem, LocalFileSystem};
use forebay_stage::{
    Identity, ItemKind, ProgressCounters, StageItem, StageLocation, StageOptions, StageRequest,
    Verify, run_stage,
};
use forebay_workflow_script::{
    FoundFile, Location, MAX_MAPPING_BYTES, Mapping, Stage, StageDirection, Variables,
};
use rustix::io::Errno;

use crate::calls::Plan;
use crate::config::{DataspaceKind, SiteConfig};
use crate::directories::{self, Account};

/// Maximum number of files of a stage out without a mapping from several nodes.
pub const MAX_NAMES: usize = 200_000;

/// The files of a job on this node.
pub struct JobFiles<'a> {
    config: &'a SiteConfig,
    plan: &'a Plan,
    account: &'a Account,
    variables: Variables,
    identity: Option<Arc<Identity>>,
}

/// A location on this node: its file system, which leads nowhere else, the root of that, and the path.
struct Place {
    files: Arc<dyn FileSystem>,
    root: PathBuf,
    path: PathBuf,
}

impl Place {
    fn location(&self) -> StageLocation {
        StageLocation::in_pfs(&self.files, &self.path)
    }

    /// The type of what is there; `None` if there is nothing.
    fn kind(&self) -> Result<Option<ItemKind>, String> {
        match self.files.open_dir(&self.path) {
            Ok(_) => Ok(Some(ItemKind::Directory)),
            Err(Errno::NOTDIR) => Ok(Some(ItemKind::File)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    fn failed(&self, errno: Errno) -> String {
        format!("{}: {}", self.path.display(), io::Error::from(errno))
    }

    /// Creates the missing directories above the path.
    fn make_parents(&self) -> Result<(), String> {
        let parent = self.path.parent().unwrap_or(&self.root);
        let Ok(below) = parent.strip_prefix(&self.root) else { return Ok(()) };
        let mut here = self.root.clone();
        for name in below.components() {
            let next = here.join(name);
            match self.files.open_dir(&next) {
                Ok(_) => {}
                Err(Errno::NOENT) => {
                    let made =
                        self.files.open_dir(&here).and_then(|dir| dir.mkdir(name.as_os_str()));
                    made.map_err(|errno| self.failed(errno))?;
                }
                Err(errno) => return Err(self.failed(errno)),
            }
            here = next;
        }
        Ok(())
    }
}

impl<'a> JobFiles<'a> {
    /// The files of a job.
    ///
    /// # Errors
    /// This process is neither root's nor the job's user's.
    pub fn new(
        config: &'a SiteConfig,
        plan: &'a Plan,
        account: &'a Account,
        job: u32,
    ) -> Result<Self, String> {
        let variables = Variables {
            home: account.home.clone(),
            user: account.name.clone(),
            job: job.to_string(),
        };
        let identity = Identity::for_user(plan.uid, plan.gid).map_err(|error| error.to_string())?;
        let identity = identity.map(Arc::new);
        Ok(JobFiles { config, plan, account, variables, identity })
    }

    fn place(&self, location: &Location) -> Result<Place, String> {
        let space = self.config.dataspace(&location.dataspace)?;
        let (root, path) = match space.kind {
            DataspaceKind::Node => {
                let root = directories::of_workflow(space, self.account, self.plan.directory);
                let path = root.join(location.path.trim_start_matches('/'));
                (root, path)
            }
            // An absolute path is one of the host; joining keeps it.
            DataspaceKind::Shared => {
                (space.directory.clone(), space.directory.join(&location.path))
            }
        };
        let files = LocalFileSystem::open(std::slice::from_ref(&root), self.identity.clone());
        Ok(Place { files, root, path })
    }

    /// The directory of the workflow's data in a dataspace, as a file system of its user.
    pub fn local(&self, root: &Path) -> Arc<dyn FileSystem> {
        LocalFileSystem::open(&[root.to_owned()], self.identity.clone())
    }

    /// Copies what a stage names on this node. `claim` gets the names of the files that other nodes
    /// must not stage out as well.
    ///
    /// # Errors
    /// The line and what is wrong.
    pub fn run(
        &self,
        stage: &Stage,
        progress: &ProgressCounters,
        claim: impl FnOnce(Vec<String>) -> Result<(), String>,
    ) -> Result<(), String> {
        let at_line = |reason: String| format!("line {}: {reason}", stage.line);
        let items = self.items(stage, claim).map_err(at_line)?;
        copy(items, progress).map_err(at_line)
    }

    fn items(
        &self,
        stage: &Stage,
        claim: impl FnOnce(Vec<String>) -> Result<(), String>,
    ) -> Result<Vec<StageItem>, String> {
        let origin = stage.origin.expand(&self.variables);
        let destination = stage.destination.expand(&self.variables);
        if let Some(mapping) = &stage.mapping {
            return self.mapped_items(mapping, &origin, &destination);
        }
        let source = self.place(&origin)?;
        let Some(kind) = source.kind()? else {
            // Other nodes of the job may have it.
            if stage.direction == StageDirection::Out && self.plan.node_count > 1 {
                return Ok(Vec::new());
            }
            return Err(format!("{origin} does not exist"));
        };
        let target = match (kind, source.path.file_name()) {
            (ItemKind::File, Some(name)) if destination.path.trim_matches('/').is_empty() => {
                destination.join(&name.to_string_lossy())
            }
            _ => destination,
        };
        if stage.direction == StageDirection::Out && self.plan.node_count > 1 {
            claim(self.names(&source, kind)?)?;
        }
        Ok(vec![self.item(kind, &source, &target)?])
    }

    fn item(&self, kind: ItemKind, source: &Place, target: &Location) -> Result<StageItem, String> {
        let target = self.place(target)?;
        target.make_parents()?;
        Ok(StageItem { kind, source: source.location(), target: target.location() })
    }

    /// Names of all files below a place.
    fn names(&self, source: &Place, kind: ItemKind) -> Result<Vec<String>, String> {
        let name = source.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if kind == ItemKind::File {
            return Ok(vec![name]);
        }
        let directory =
            source.files.open_dir(&source.path).map_err(|errno| source.failed(errno))?;
        let mut names = Vec::new();
        list_files(&*directory, "", &mut names).map_err(|errno| source.failed(errno))?;
        if names.len() > MAX_NAMES {
            return Err(format!(
                "{} has more than {MAX_NAMES} files: stage them out with a mapping file",
                source.path.display()
            ));
        }
        Ok(names)
    }

    fn mapped_items(
        &self,
        file: &str,
        origin: &Location,
        destination: &Location,
    ) -> Result<Vec<StageItem>, String> {
        let path = Path::new(&self.plan.working_directory).join(file);
        let everything = LocalFileSystem::open(&[], self.identity.clone());
        let read = StageLocation::in_pfs(&everything, &path).read(MAX_MAPPING_BYTES);
        let text = read.map_err(|problem| problem.to_string())?;
        let text = String::from_utf8_lossy(&text);
        let mapping = Mapping::parse(&text, &self.variables)
            .map_err(|errors| format!("{}: {errors}", path.display()))?;
        self.check_mapping(&mapping, origin, destination)
            .map_err(|reason| format!("{}: {reason}", path.display()))?;
        let found = self.find(&mapping)?;
        let files = mapping
            .files_of(self.plan.rank, &found)
            .map_err(|reason| format!("{}: {reason}", path.display()))?;
        let mut items = Vec::new();
        for (file, target) in files {
            let source = self.place(&file)?;
            let kind = source.kind()?.ok_or_else(|| format!("{file} does not exist"))?;
            let directory = if target.path.is_empty() { destination } else { &target };
            let name = source.path.file_name().unwrap_or_default().to_string_lossy();
            items.push(self.item(kind, &source, &directory.join(&name))?);
        }
        Ok(items)
    }

    fn check_mapping(
        &self,
        mapping: &Mapping,
        origin: &Location,
        destination: &Location,
    ) -> Result<(), String> {
        for input in &mapping.inputs {
            if !input.location.is_within(origin) {
                return Err(format!(
                    "line {}: the input {} is not in {origin}, the origin of the stage",
                    input.line, input.location
                ));
            }
        }
        for row in &mapping.rows {
            if row.target.dataspace != destination.dataspace {
                return Err(format!(
                    "line {}: {} is not in {destination}, the destination of the stage",
                    row.line, row.target
                ));
            }
            if row.rank >= self.plan.node_count {
                return Err(format!(
                    "line {}: there is no rank {}; the job has {} nodes, from rank 0",
                    row.line, row.rank, self.plan.node_count
                ));
            }
        }
        Ok(())
    }

    /// The files of all inputs of a mapping.
    fn find(&self, mapping: &Mapping) -> Result<Vec<FoundFile>, String> {
        let mut found = Vec::new();
        for (input, declared) in mapping.inputs.iter().enumerate() {
            let Some(pattern) = &declared.pattern else {
                let location = declared.location.clone();
                found.push(FoundFile { input, matched: String::new(), location });
                continue;
            };
            let place = self.place(&declared.location)?;
            let directory = match place.files.open_dir(&place.path) {
                Ok(directory) => directory,
                Err(errno) => return Err(place.failed(errno)),
            };
            let mut names = Vec::new();
            let listed = directory.read_dir(&mut |name, _| {
                names.extend(name.to_str().map(str::to_owned));
                true
            });
            listed.map_err(|errno| place.failed(errno))?;
            for name in names {
                let Some(matched) = pattern.matched(&name) else { continue };
                let mut location = declared.location.join(&name);
                if !pattern.rest.is_empty() {
                    location = location.join(&pattern.rest);
                }
                found.push(FoundFile { input, matched: matched.to_owned(), location });
            }
        }
        Ok(found)
    }
}

/// Adds the paths of all entries below a directory that are not directories.
pub fn list_files(
    directory: &dyn DirHandle,
    prefix: &str,
    names: &mut Vec<String>,
) -> Result<(), Errno> {
    let mut directories = Vec::new();
    directory.read_dir(&mut |name, found| {
        let path = format!("{prefix}{}", name.to_string_lossy());
        match found {
            Ok(found) if found.kind == FileKind::Directory => {
                directories.push((name.to_owned(), path));
            }
            _ => names.push(path),
        }
        names.len() <= MAX_NAMES
    })?;
    for (name, path) in directories {
        list_files(&*directory.open_dir(&name)?, &format!("{path}/"), names)?;
    }
    Ok(())
}

/// Copies items; every copy is read back and compared.
pub fn copy(items: Vec<StageItem>, progress: &ProgressCounters) -> Result<(), String> {
    if items.is_empty() {
        return Ok(());
    }
    let options = StageOptions { verify: Verify::ReadBack, ..StageOptions::default() };
    let outcome = run_stage(&StageRequest { items }, &options, progress);
    outcome.map(drop).map_err(|error| error.to_string())
}
