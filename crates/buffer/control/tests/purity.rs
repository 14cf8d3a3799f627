//! The control plane and all crates that it uses do no I/O: no sockets, files, threads or clocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that call the operating system.
const IMPURE: &[&str] = &[
    "libc",
    "rustix",
    "linux-raw-sys",
    "nix",
    "mio",
    "socket2",
    "polling",
    "tokio",
    "getrandom",
    "parking_lot",
    "signal-hook",
    "forebay-fuse",
    "redb",
    "snow",
    "libloading",
    "tracing",
];
/// Modules and types of std that do, and code that could.
const IMPURE_STD: &[&str] = &[
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::os::",
    "std::process",
    "std::thread",
    "std::env::",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "Instant::now",
    "SystemTime::now",
    "unsafe {",
    "extern \"C\"",
];

/// The packages on which forebay-control depends, directly or not: names, and directories of those of
/// this workspace.
fn dependencies() -> Vec<(String, Option<PathBuf>)> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", "forebay-control", "--edges", "normal", "--prefix", "none"])
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).unwrap();
    let parse = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let directory = rest.split_once('(').and_then(|(_, path)| path.split(')').next());
        let directory = directory.filter(|path| path.starts_with('/')).map(PathBuf::from);
        Some((name.to_owned(), directory))
    };
    lines.lines().filter_map(parse).collect()
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_dependency_of_the_control_plane_calls_the_operating_system() {
    let dependencies = dependencies();
    for (name, _) in &dependencies {
        assert!(!IMPURE.contains(&name.as_str()), "forebay-control depends on {name}");
    }
    let own = ["forebay-control", "forebay-protocol", "forebay-policy", "forebay-job-script"];
    for name in own {
        assert!(dependencies.iter().any(|(other, dir)| other == name && dir.is_some()), "{name}");
    }
}

#[test]
fn no_source_of_the_control_plane_calls_the_operating_system() {
    let mut files = Vec::new();
    for (_, directory) in dependencies() {
        if let Some(directory) = directory {
            rust_files(&directory.join("src"), &mut files);
        }
    }
    assert!(files.len() > 50, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in IMPURE_STD {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
}
