//! Programs and libraries of this workspace, built when they are needed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use super::run_successfully;

/// A program of this workspace. Tests find it beside `forebay`, examples one directory up.
pub fn program(name: &str) -> PathBuf {
    let beside = match option_env!("CARGO_BIN_EXE_forebay") {
        Some(forebay) => PathBuf::from(forebay),
        None => std::env::current_exe().unwrap().parent().unwrap().to_owned(),
    };
    beside.with_file_name(name)
}

/// A program of another package. Cargo builds it next to `forebay` when it tests the workspace; it
/// is built here if only this package's tests were asked for.
pub fn built_program(package: &str, name: &str) -> PathBuf {
    built_file(package, &format!("--bin={name}"), name)
}

/// The interception library.
pub fn interception_library() -> PathBuf {
    built_file("forebay-preload", "--lib", "libforebay_preload.so")
}

/// Slurm's plugin for the options of workflows.
pub fn workflow_plugin() -> PathBuf {
    built_file("forebay-spank", "--lib", "libforebay_spank.so")
}

/// The file `name` that a target of another package becomes.
fn built_file(package: &str, target: &str, name: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let (forebay, wanted) = (program("forebay"), program(name));
    let _building = BUILDING.lock().unwrap();
    if is_older(&wanted, &forebay) {
        build(&[&format!("--package={package}"), target]);
    }
    wanted
}

/// Whether a file is absent, or was modified before another one.
pub fn is_older(file: &Path, other: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    modified(file) < modified(other)
}

/// Builds targets of other packages, as `forebay` was built.
pub fn build(targets: &[&str]) {
    let release = program("forebay").components().any(|part| part.as_os_str() == "release");
    let profile = if release { "--profile=release" } else { "--profile=test" };
    let mut cargo = Command::new(env!("CARGO"));
    run_successfully(cargo.args(["build", "--quiet", profile]).args(targets));
}

/// The daemons' program.
pub fn forebayd() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built_program("forebayd", "forebayd"))
}
