//! Installation of libdatawarp, and compilation of C programs that use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the sources.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Installs library, header and description below `prefix`.
pub fn install(prefix: &Path) {
    for directory in ["lib/pkgconfig", "include"] {
        fs::create_dir_all(prefix.join(directory)).unwrap();
    }
    let bridge = root().join("crates/bridges/datawarp");
    let built = std::env::current_exe().unwrap();
    let library = built.with_file_name("libdatawarp.so");
    let copies = [
        (library, "lib/libdatawarp.so"),
        (bridge.join("include/datawarp.h"), "include/datawarp.h"),
        (bridge.join("pkgconfig/cray-datawarp.pc"), "lib/pkgconfig/cray-datawarp.pc"),
    ];
    for (from, to) in copies {
        fs::copy(&from, prefix.join(to)).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    }
}

/// Compiles a C program with pkg-config, into `prefix`.
pub fn compile(prefix: &Path, source: &Path, program: &str) {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "cray-datawarp >= 1.0"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .unwrap();
    assert!(flags.status.success(), "{flags:?}");
    let flags = String::from_utf8(flags.stdout).unwrap();
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(prefix.join(program))
        .arg(source)
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{stderr}");
}
