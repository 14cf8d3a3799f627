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

/// Packages beside `forebay`, and the last file that each of them becomes.
const PACKAGES: [(&str, &str); 9] = [
    ("forebayd", "forebayd"),
    ("forebay-datawarp", "dw_wlm_cli"),
    ("forebay-nornsctl", "nornsctl"),
    ("forebay-workflow", "forebay-workflow"),
    ("forebay-libnorns", "libnorns.so"),
    ("forebay-libnornsctl", "libnornsctl.so"),
    ("forebay-preload", "libforebay_preload.so"),
    ("forebay-mpiio", "libforebay_mpiio.so"),
    ("forebay-spank", "libforebay_spank.so"),
];

/// A program or library of another package.
pub fn built_program(name: &str) -> PathBuf {
    build_packages();
    program(name)
}

/// The interception library.
pub fn interception_library() -> PathBuf {
    built_program("libforebay_preload.so")
}

/// Slurm's plugin for the options of workflows.
pub fn workflow_plugin() -> PathBuf {
    built_program("libforebay_spank.so")
}

/// Builds all packages beside `forebay`, unless they are newer or `scripts/test.sh` has built them. All
/// at once: the dependencies of one alone would be compiled again with other features.
pub fn build_packages() {
    if std::env::var_os("FOREBAY_TEST_PROGRAMS").is_some_and(|state| state == "built") {
        return;
    }
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap();
    let modified = |name: &str| program(name).metadata().and_then(|found| found.modified()).ok();
    let forebay = modified("forebay");
    if PACKAGES.iter().any(|(_, file)| modified(file) < forebay) {
        let packages = PACKAGES.map(|(package, _)| format!("--package={package}"));
        build(&packages.each_ref().map(String::as_str));
    }
}

/// Builds targets, as `forebay` was built.
pub fn build(targets: &[&str]) {
    let release = program("forebay").components().any(|part| part.as_os_str() == "release");
    let profile = if release { "--profile=release" } else { "--profile=test" };
    let mut cargo = Command::new(env!("CARGO"));
    run_successfully(cargo.args(["build", "--quiet", profile]).args(targets));
}

/// The daemons' program.
pub fn forebayd() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built_program("forebayd"))
}
