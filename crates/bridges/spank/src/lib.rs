//! A SPANK plugin: the options of workflow jobs in `sbatch`, `salloc` and `srun`, and the variables
//! of node-local dataspaces in the job's environment.
//!
//! `plugstack.conf`:
//!
//! ```text
//! required /usr/lib/forebay/libforebay_spank.so environment=/run/forebay/workflow
//! ```
//!
//! Slurm keeps the options in the job's environment, where `job_submit/lua` finds them. The prolog
//! writes the variables of a job to the directory `environment`, on each node.

mod interface;

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::path::{Path, PathBuf};

use interface::{
    Context, ESPANK_SUCCESS, Handle, Item, Option as SpankOption, OptionTable, spank_context,
    spank_get_item, spank_option_register, spank_setenv,
};

/// Longest file of variables that is read, in bytes.
const MAX_VARIABLES: u64 = 64 * 1024;
/// Maximum number of prior jobs.
const MAX_PRIOR_JOBS: usize = 256;
/// Value by which the callback recognizes the option with job ids.
const PRIOR: c_int = 1;

/// The plugin's name.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name that Slurm looks up")]
pub static plugin_name: [u8; 17] = *b"forebay_workflow\0";
/// Its type.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name that Slurm looks up")]
pub static plugin_type: [u8; 6] = *b"spank\0";
/// The version of Slurm that it is for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name that Slurm looks up")]
pub static plugin_version: u32 = interface::SLURM_VERSION;
/// Its own version.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name that Slurm looks up")]
pub static spank_plugin_version: u32 = 1;

static OPTIONS: OptionTable<3> = OptionTable([
    SpankOption {
        name: c"workflow-start".as_ptr(),
        arginfo: std::ptr::null(),
        usage: c"the job begins a workflow".as_ptr(),
        has_arg: 0,
        val: 0,
        cb: Some(check_option),
    },
    SpankOption {
        name: c"workflow-prior-dependency".as_ptr(),
        arginfo: c"JOBID[,JOBID...]".as_ptr(),
        usage: c"the job belongs to the workflow of these jobs and runs after them".as_ptr(),
        has_arg: 1,
        val: PRIOR,
        cb: Some(check_option),
    },
    SpankOption {
        name: c"workflow-end".as_ptr(),
        arginfo: std::ptr::null(),
        usage: c"the job ends its workflow".as_ptr(),
        has_arg: 0,
        val: 0,
        cb: Some(check_option),
    },
]);

/// Called by Slurm when it loads the plugin, in every program.
///
/// # Safety
/// The handle is Slurm's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(spank: Handle, _: c_int, _: *mut *mut c_char) -> c_int {
    for option in &OPTIONS.0 {
        // SAFETY: Slurm passes its handle; the option and its strings are static.
        if unsafe { spank_option_register(spank, option) } != ESPANK_SUCCESS {
            report("the options of workflows cannot be registered: is another plugin using them?");
            return -1;
        }
    }
    ESPANK_SUCCESS
}

/// Checks an option's argument in the submitting program.
extern "C" fn check_option(value: c_int, argument: *const c_char, remote: c_int) -> c_int {
    if value != PRIOR || remote != 0 {
        return ESPANK_SUCCESS;
    }
    if argument.is_null() {
        return -1;
    }
    // SAFETY: Slurm passes a string.
    let text = unsafe { CStr::from_ptr(argument) }.to_string_lossy();
    match check_prior_jobs(&text) {
        Ok(()) => ESPANK_SUCCESS,
        Err(reason) => {
            report(&format!("--workflow-prior-dependency: {reason}"));
            -1
        }
    }
}

/// Checks a list of job ids.
fn check_prior_jobs(text: &str) -> Result<(), String> {
    let ids: Vec<&str> = text.split(',').collect();
    if ids.len() > MAX_PRIOR_JOBS {
        return Err(format!("more than {MAX_PRIOR_JOBS} jobs; insert jobs that join some of them"));
    }
    for id in ids {
        if !id.bytes().all(|byte| byte.is_ascii_digit())
            || !id.parse::<u32>().is_ok_and(|id| id > 0)
        {
            let remedy =
                "write the ids that `sbatch` printed, separated by commas, such as 5656,5666";
            return Err(format!("`{}` is no job id; {remedy}", id.escape_debug()));
        }
    }
    Ok(())
}

/// Called for each step on each node, before its tasks start.
///
/// # Safety
/// The handle is Slurm's, and `arguments` leads to `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_user_init(
    spank: Handle,
    count: c_int,
    arguments: *mut *mut c_char,
) -> c_int {
    // SAFETY: takes no arguments.
    if unsafe { spank_context() } != Context::Remote as c_int {
        return ESPANK_SUCCESS;
    }
    // SAFETY: as the caller guarantees.
    let Some(directory) = (unsafe { directory_argument(count, arguments) }) else {
        return ESPANK_SUCCESS;
    };
    let mut job = 0u32;
    // SAFETY: this item is a job id, a pointer to which follows.
    if unsafe { spank_get_item(spank, Item::JobId as c_int, &raw mut job) } != ESPANK_SUCCESS {
        return ESPANK_SUCCESS;
    }
    // Other jobs have none.
    for (name, value) in read_variables(&directory.join(job.to_string())) {
        // SAFETY: Slurm's handle and two strings, which it copies.
        unsafe { spank_setenv(spank, name.as_ptr(), value.as_ptr(), 1) };
    }
    ESPANK_SUCCESS
}

/// The value of `environment=` in `plugstack.conf`.
///
/// # Safety
/// `arguments` leads to `count` strings.
unsafe fn directory_argument(count: c_int, arguments: *mut *mut c_char) -> Option<PathBuf> {
    let count = usize::try_from(count).ok().filter(|count| *count > 0 && !arguments.is_null())?;
    // SAFETY: as the caller guarantees.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count) };
    arguments.iter().find_map(|argument| {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(*argument) }.to_string_lossy().into_owned();
        text.strip_prefix("environment=").map(PathBuf::from)
    })
}

/// The `NAME=VALUE` lines of a file; none if it does not exist.
fn read_variables(file: &Path) -> Vec<(CString, CString)> {
    let length = fs::symlink_metadata(file).map_or(0, |found| found.len());
    let text = if length <= MAX_VARIABLES { fs::read_to_string(file) } else { return Vec::new() };
    let parse = |line: &str| {
        let (name, value) = line.split_once('=')?;
        Some((CString::new(name).ok()?, CString::new(value).ok()?))
    };
    text.unwrap_or_default().lines().filter_map(parse).collect()
}

/// Reports an error to the user of the program.
fn report(text: &str) {
    if let Ok(text) = CString::new(text) {
        // SAFETY: a format with one string.
        unsafe { interface::slurm_error(c"%s".as_ptr(), text.as_ptr()) };
    }
}
