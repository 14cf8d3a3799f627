//! Paths on the parallel file system are confined to the configured directories.

use crate::support;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use forebay_stage::end::{FileSystem, LocalFileSystem};
use forebay_stage::{Identity, ItemKind, StageError, StageLocation, StageOptions};
use proptest::prelude::*;
use support::{one, run, sides};

const OUT: &str = "leads out of the directories";

fn read(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Vec<u8>, String> {
    let read = StageLocation::in_pfs(fs, path).read(1000);
    read.map_err(|problem| problem.reason)
}

#[test]
fn links_are_followed_below_the_roots_only() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    for directory in ["a/deep", "b", "secret"] {
        fs::create_dir_all(path(directory)).unwrap();
    }
    fs::write(path("a/file"), "a").unwrap();
    fs::write(path("b/file"), "b").unwrap();
    fs::write(path("secret/file"), "s").unwrap();
    symlink(path("b"), path("a/to-b")).unwrap();
    symlink("../b/file", path("a/to-file")).unwrap();
    symlink("../file", path("a/deep/up")).unwrap();
    symlink(path("secret"), path("a/to-secret")).unwrap();
    symlink("../secret/file", path("a/to-secret-file")).unwrap();
    symlink("loop", path("a/loop")).unwrap();
    symlink("/proc/self/root", path("a/magic")).unwrap();
    let fs = LocalFileSystem::open(&[path("a"), path("b"), path("none")], None);
    let read = |name: &str| read(&fs, &path(name));
    assert_eq!(read("a/file").unwrap(), b"a");
    assert_eq!(read("a/deep/up").unwrap(), b"a");
    assert_eq!(read("a/deep/../file").unwrap(), b"a");
    // From one root to the other.
    assert_eq!(read("a/to-b/file").unwrap(), b"b");
    assert_eq!(read("a/to-file").unwrap(), b"b");
    for out in [
        "secret/file",
        "a/to-secret/file",
        "a/to-secret-file",
        "a/../secret/file",
        "a/deep/../../secret/file",
        "ab",
    ] {
        assert!(read(out).unwrap_err().contains(OUT), "{out}");
    }
    let magic = format!("a/magic{}", path("secret/file").display());
    assert!(read(&magic).unwrap_err().contains(OUT));
    assert!(read("a/loop").unwrap_err().contains("symbolic links"));
    assert_eq!(read("a/none").unwrap_err(), "does not exist");
    assert_eq!(read("none/file").unwrap_err(), "does not exist");
}

#[test]
fn stage_through_a_link_that_leads_out_fails() {
    let sides = sides();
    let outside = sides.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "other").unwrap();
    symlink(&outside, sides.pfs.join("link")).unwrap();
    sides.buffer.write("r", b"result");
    let fs = LocalFileSystem::open(std::slice::from_ref(&sides.pfs), None);
    let location = |path: &str| StageLocation::in_pfs(&fs, sides.pfs.join(path));
    let attempts = [
        one(ItemKind::File, location("link/file"), sides.inside("x")),
        one(ItemKind::Directory, location("link"), sides.inside("x")),
        one(ItemKind::File, sides.inside("r"), location("link/r")),
        one(ItemKind::Directory, sides.inside(""), location("link/tree")),
        one(ItemKind::Directory, sides.inside(""), location("link")),
    ];
    for attempt in attempts {
        let Err(StageError::Incomplete { problems, .. }) = run(&attempt, &StageOptions::default())
        else {
            panic!("{attempt:?} was staged");
        };
        assert!(problems[0].reason.contains(OUT), "{}", problems[0]);
    }
    assert!(!sides.buffer.exists("x"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    // A staged link remains a link and is not followed.
    let tree = one(ItemKind::Directory, location(""), sides.inside("tree"));
    run(&tree, &StageOptions::default()).unwrap();
    let link = sides.buffer.attr("tree/link").unwrap();
    assert_eq!(link.kind, forebay_protocol::FileKind::Symlink);
}

#[test]
fn user_permissions_apply_below_the_roots() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can act for others: not tried");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let pfs = home.path().join("closed/pfs");
    fs::create_dir_all(&pfs).unwrap();
    fs::write(pfs.join("file"), "f").unwrap();
    fs::set_permissions(home.path().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let who = Identity::for_user(12_345, 12_345).unwrap().map(Arc::new);
    let as_root = LocalFileSystem::open(std::slice::from_ref(&pfs), None);
    assert_eq!(read(&as_root, &pfs.join("file")).unwrap(), b"f");
    let as_user = LocalFileSystem::open(std::slice::from_ref(&pfs), who);
    let refused = read(&as_user, &pfs.join("file")).unwrap_err();
    assert!(refused.contains("Permission denied"), "{refused}");
}

proptest! {
    /// Every file that is read lies below a root, whatever the components of its path.
    #[test]
    fn random_paths_never_lead_out(parts in prop::collection::vec(
        prop::sample::select(vec!["..", ".", "in", "up", "abs", "root", "file", ""]), 0..8)
    ) {
        let home = tempfile::tempdir().unwrap();
        let below = home.path().join("below");
        fs::create_dir_all(below.join("in")).unwrap();
        fs::write(below.join("file"), "below").unwrap();
        fs::write(below.join("in/file"), "below").unwrap();
        fs::write(home.path().join("file"), "above").unwrap();
        for directory in [&below, &below.join("in")] {
            symlink("..", directory.join("up")).unwrap();
            symlink(home.path(), directory.join("abs")).unwrap();
            symlink("/", directory.join("root")).unwrap();
        }
        let fs = LocalFileSystem::open(std::slice::from_ref(&below), None);
        let path = format!("{}/{}", below.display(), parts.join("/"));
        if let Ok(bytes) = read(&fs, Path::new(&path)) {
            prop_assert_eq!(bytes, b"below");
        }
    }
}
