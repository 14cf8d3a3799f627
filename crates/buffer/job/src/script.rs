//! Reading job scripts, and checking that this buffer supports them.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_control::controller::{Cause, Failure, InstanceSpec, Setup};
use forebay_job_script::{
    CreatePersistent, Direction, InstanceType, JobScript, StageKind, StagePath, Symbols,
};

use crate::error::RunError;
use crate::pool::PoolSelection;

/// Largest script that is read, in bytes.
const MAX_SCRIPT: u64 = 16 << 20;

/// A job id that is unique on this machine.
pub(crate) fn new_token() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}{:03}-{}", since.as_secs(), since.subsec_millis(), std::process::id())
}

/// Reads the directives of a job script for the job `token`, with Slurm's `%` symbols replaced as in a job
/// that is submitted here.
///
/// # Errors
/// As [`read_directives`], and if the working directory is unknown.
pub fn read_script(path: &Path, token: &str) -> Result<JobScript, RunError> {
    read_directives(path, Some(&symbols(path, token)?))
}

/// Reads the directives of a job script, and checks that this buffer supports them. `symbols`
/// replaces Slurm's `%` symbols; `None` leaves percent signs alone.
pub fn read_directives(path: &Path, symbols: Option<&Symbols>) -> Result<JobScript, RunError> {
    let unreadable = |error| RunError::Unreadable(path.to_owned(), error);
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_SCRIPT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_SCRIPT {
        let reason = format!("the script is larger than {MAX_SCRIPT} bytes");
        return Err(RunError::Unsupported(path.to_owned(), reason));
    }
    // Directives are in the head; what follows it may be anything.
    let text = String::from_utf8_lossy(&bytes);
    let script = JobScript::parse(&text, symbols)
        .map_err(|errors| RunError::Script(path.to_owned(), errors))?;
    match unsupported(&script) {
        Some(reason) => Err(RunError::Unsupported(path.to_owned(), reason)),
        None => Ok(script),
    }
}

fn symbols(path: &Path, token: &str) -> Result<Symbols, RunError> {
    let here =
        std::env::current_dir().map_err(|error| RunError::Unreadable(path.to_owned(), error))?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uid = rustix::process::geteuid().as_raw();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Symbols {
        job_id: token.to_owned(),
        array: variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID")),
        work_dir: here.to_string_lossy().into_owned(),
        user: variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| uid.to_string()),
        job_name: variable("SLURM_JOB_NAME").or(name).unwrap_or_default(),
    })
}

/// Warnings about what is likely to go wrong, before the job runs.
pub fn script_warnings(script: &JobScript) -> impl Iterator<Item = String> {
    let ignored = script.ignored_directives.iter();
    let ignored =
        ignored.map(|line| format!("line {line}: a directive after the first command is not read"));
    let missing_parents = script.stages(Direction::Out).filter_map(|stage| {
        let StagePath::Pfs(destination) = &stage.destination else {
            return None;
        };
        if stage.kind == StageKind::File && Path::new(destination).is_dir() {
            return Some(format!(
                "line {}: {destination} is a directory here; end the destination with `/` to stage \
                 the file into it",
                stage.line
            ));
        }
        let parent = Path::new(destination).parent()?;
        let missing = parent.symlink_metadata().err()?;
        (missing.kind() == ErrorKind::NotFound).then(|| {
            format!(
                "line {}: {} does not exist here; nothing can be staged out unless it is made \
                 before the job ends",
                stage.line,
                parent.display()
            )
        })
    });
    ignored.chain(missing_parents)
}

/// Checks that no directory that is staged in contains that of the embedded pool, whose files change
/// while they are copied.
///
/// # Errors
/// One does.
pub(crate) fn check_sources(
    path: &Path,
    script: &JobScript,
    pool: &PoolSelection,
) -> Result<(), RunError> {
    let PoolSelection::Embedded(options) = pool else {
        return Ok(());
    };
    // The directory may not exist yet, but the one it is made in does.
    let Ok(pool) = std::path::absolute(&options.directory) else {
        return Ok(());
    };
    let beside = |parent: &Path| Some(parent.canonicalize().ok()?.join(pool.file_name()?));
    let pool = pool.canonicalize().ok().or_else(|| beside(pool.parent()?)).unwrap_or(pool);
    let sources = script.stages(Direction::In).filter(|stage| stage.kind == StageKind::Directory);
    for stage in sources {
        let StagePath::Pfs(source) = &stage.source else {
            continue;
        };
        if Path::new(source).canonicalize().is_ok_and(|source| pool.starts_with(source)) {
            let reason = format!(
                "line {}: {source} contains the pool's directory {}, whose files cannot be staged: \
                 stage in a directory beside it, or give the pool another one with --pool",
                stage.line,
                pool.display()
            );
            return Err(RunError::Unsupported(path.to_owned(), reason));
        }
    }
    Ok(())
}

/// The first request of the script that the buffer does not support.
fn unsupported(script: &JobScript) -> Option<String> {
    if let Some(swap) = script.swap() {
        return Some(format!("line {}: swap space is not supported; remove the line", swap.line));
    }
    let job = script.job()?;
    let line = job.line;
    if job.kind != InstanceType::Scratch {
        return Some(format!(
            "line {line}: type=cache is not supported; write type=scratch and stage files in and out"
        ));
    }
    let all = job.access.iter().map(|access| &access.modifiers).chain([&job.modifiers]);
    let mut all = all;
    if all.any(|modifiers| modifiers.max_file_size.is_some()) {
        return Some(format!(
            "line {line}: the size of single files cannot be limited; remove `MFS=`"
        ));
    }
    None
}

/// The setup that a script requests, with the numbers of its groups.
///
/// # Errors
/// A group does not exist on this host.
pub fn setup_of(script: &JobScript) -> Result<Setup, RunError> {
    let mut setup = Setup::from_script(script);
    if let (Some(spec), Some(job)) = (&mut setup.instance, script.job()) {
        spec.group = job.group.as_deref().map(group_id).transpose()?;
    }
    Ok(setup)
}

/// The persistent instance that a `create_persistent` requests.
///
/// # Errors
/// Its group does not exist on this host.
pub(crate) fn persistent_spec(created: &CreatePersistent) -> Result<InstanceSpec, RunError> {
    let access = created.access.clone();
    let mut spec = InstanceSpec::scratch(created.capacity, access, created.pool.clone());
    spec.group = created.group.as_deref().map(group_id).transpose()?;
    Ok(spec)
}

/// The number of a group, from its name or number.
///
/// # Errors
/// The group does not exist on this host.
pub fn group_id(text: &str) -> Result<u32, RunError> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) | Err(_) => {
            let reason = format!("there is no group `{text}` on this host");
            Err(RunError::Step("set up", Failure::new(Cause::Invalid, reason)))
        }
    }
}
