//! Transfers between two nodes, each with its own service.

use crate::site::{Munged, Site, USER, failed};
use crate::{await_copying, interrupt, number_of};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

fn finished(printed: &str, bytes: u64) -> bool {
    printed == format!("status -103 result 0 errno 0 pending 0 total {bytes}")
}

#[test]
fn tree_is_pushed_to_another_node_and_pulled_back() {
    let (near, far) = (Site::new().with_job("100"), Site::new().with_job("100"));
    let big: Vec<u8> = (0..5).map(|part| vec![part as u8; 1_000_000]).collect::<Vec<_>>().concat();
    near.write("open/tree/deep/big", &big);
    near.write("open/tree/small", "small");
    fs::hard_link(near.path("open/tree/small"), near.path("open/tree/twin")).unwrap();
    symlink("small", near.path("open/tree/link")).unwrap();
    fs::set_permissions(near.path("open/tree/small"), fs::Permissions::from_mode(0o640)).unwrap();
    let pushed = near.user(&["copy", "local:open:tree", &far.remote("dst", "new/tree")]);
    assert!(finished(&pushed, 5_000_010), "{pushed}");
    let at = |name: &str| far.path("dst/new/tree").join(name);
    assert!(fs::read(at("deep/big")).unwrap() == big);
    assert_eq!(fs::read_link(at("link")).unwrap().to_str(), Some("small"));
    let stat = |name: &str| fs::metadata(at(name)).unwrap();
    assert_eq!((stat("small").uid(), stat("small").mode() & 0o777), (USER, 0o640));
    assert_eq!(stat("small").ino(), stat("twin").ino(), "a hard link");
    let original = fs::metadata(near.path("open/tree/deep/big")).unwrap();
    assert_eq!(stat("deep/big").modified().unwrap(), original.modified().unwrap());

    near.user(&["copy", &far.remote("dst", "new/tree"), "local:dst:back"]);
    assert!(fs::read(near.path("dst/back/deep/big")).unwrap() == big);
    near.user(&["move", &far.remote("dst", "new/tree/small"), "local:dst:moved"]);
    assert_eq!(fs::read(near.path("dst/moved")).unwrap(), b"small");
    assert!(!at("small").exists() && at("twin").exists());
    near.user(&["move", "local:dst:back", &far.remote("dst", "again")]);
    assert!(!near.path("dst/back").exists());
    assert!(fs::read(far.path("dst/again/deep/big")).unwrap() == big);
    near.user(&["copy", "memory:of this process", &far.remote("dst", "region")]);
    assert_eq!(fs::read(far.path("dst/region")).unwrap(), b"of this process");
    let both = near.user_fails(&["copy", &far.remote("dst", "a"), &far.remote("dst", "b")]);
    assert!(both.starts_with("submit -200 "), "{both}");
}

#[test]
fn other_node_checks_job_quota_and_permissions() {
    let (near, far) = (Site::new().with_job("100"), Site::new());
    near.write("open/two", vec![1; 2 << 20]);
    let push = ["copy", "local:open:two", &far.remote("dst", "two")];
    let refused = near.user_fails(&push);
    assert!(failed(&refused, libc::EACCES), "the job is not known there: {refused}");
    far.control(&["job", "42", "dst", "3"]);
    near.user(&push);
    near.user(&push);
    let full = near.user_fails(&["copy", "local:open:two", &far.remote("dst", "more")]);
    assert!(failed(&full, libc::EDQUOT), "{full}");
    assert_eq!(far.names("dst"), ["two"]);
    assert!(far.nornsctl("jobs").1.contains("dst 2.00 MiB of 3.00 MiB"));
    far.write("open/secret", "of root");
    fs::set_permissions(far.path("open/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    chown(far.path("open/secret"), Some(0), Some(0)).unwrap();
    let pulled = near.user_fails(&["copy", &far.remote("open", "secret"), "local:dst:secret"]);
    assert!(failed(&pulled, libc::EACCES), "{pulled}");
    let outside = near.user_fails(&["copy", &far.remote("open", "../key"), "local:dst:key"]);
    assert!(failed(&outside, libc::ENOENT), "{outside}");
    symlink("../urd.conf", far.path("open/out")).unwrap();
    let outside = near.user_fails(&["copy", &far.remote("open", "out"), "local:dst:key"]);
    assert!(failed(&outside, libc::ENOENT), "{outside}");
    assert!(near.names("dst").is_empty(), "{:?}", near.names("dst"));
}

#[test]
fn node_with_another_key_is_neither_read_nor_written() {
    let near = Site::with_key("the secret of others").with_job("100");
    let far = Site::new().with_job("100");
    near.write("open/a", "x");
    far.write("open/b", "y");
    let pushed = near.user_fails(&["copy", "local:open:a", &far.remote("open", "a")]);
    assert!(failed(&pushed, libc::EACCES), "{pushed}");
    let pulled = near.user_fails(&["copy", &far.remote("open", "b"), "local:dst:b"]);
    assert!(failed(&pulled, libc::EACCES), "{pulled}");
    assert_eq!(far.names("open"), ["b"]);
    assert!(near.names("dst").is_empty());
}

#[test]
fn nodes_authenticate_with_munge_and_refuse_those_of_another_realm() {
    let (munged, other) = (Munged::start(), Munged::start());
    let (near, far) = (Site::with_munge(&munged), Site::with_munge(&munged));
    let (near, far) = (near.with_job("100"), far.with_job("100"));
    near.write("open/file", "of the user");
    near.user(&["copy", "local:open:file", &far.remote("dst", "file")]);
    let copy = far.path("dst/file");
    assert_eq!(fs::read(&copy).unwrap(), b"of the user");
    assert_eq!(fs::metadata(&copy).unwrap().uid(), USER);

    let stranger = Site::with_munge(&other).with_job("100");
    stranger.write("open/file", "of a stranger");
    let push = ["copy", "local:open:file", &far.remote("dst", "strange")];
    let refused = stranger.user_fails(&push);
    assert!(failed(&refused, libc::EACCES), "{refused}");
    assert_eq!(far.names("dst"), ["file"]);
}

#[test]
fn transfer_fails_cleanly_when_the_other_node_is_killed_and_succeeds_again() {
    let (near, mut far) = (Site::new().with_job("1000"), Site::new().with_job("1000"));
    let contents = vec![9; 100 << 20];
    near.write("open/big", &contents);
    let to = far.remote("dst", "big");
    let task = interrupt(|| {
        let started = near.user(&["copy", "start", "local:open:big", &to]);
        await_copying(&far, "dst");
        far.kill();
        let is_complete = far.path("dst/big").exists();
        far.start();
        if is_complete {
            near.run(USER, &["await", &number_of(&started)]);
            fs::remove_file(far.path("dst/big")).unwrap();
        }
        (!is_complete).then(|| number_of(&started))
    });
    let printed = near.user_fails(&["await", &task]);
    assert!(printed.starts_with("status -104 result -201 "), "{printed}");
    assert!(!far.path("dst/big").exists());
    near.user(&["copy", "local:open:big", &to]);
    assert!(fs::read(far.path("dst/big")).unwrap() == contents);
    assert_eq!(far.names("dst"), ["big"], "no incomplete file is left");
}

#[test]
fn transfer_continues_when_the_own_service_was_killed() {
    let (mut near, far) = (Site::new().with_job("1000"), Site::new().with_job("1000"));
    let contents = vec![9; 100 << 20];
    let from = far.remote("open", "big");
    let task = interrupt(|| {
        far.write("open/big", &contents);
        let started = near.user(&["move", "start", &from, "local:dst:big"]);
        await_copying(&near, "dst");
        near.kill();
        let is_complete = near.path("dst/big").exists();
        assert!(is_complete || far.path("open/big").exists(), "the source is kept");
        near.start();
        if is_complete {
            near.user(&["await", &number_of(&started)]);
            fs::remove_file(near.path("dst/big")).unwrap();
        }
        (!is_complete).then(|| number_of(&started))
    });
    let printed = near.user(&["await", &task]);
    assert!(finished(&printed, 100 << 20), "{printed}");
    assert!(fs::read(near.path("dst/big")).unwrap() == contents);
    assert_eq!(near.names("dst"), ["big"]);
    assert!(!far.path("open/big").exists(), "moved");
}
