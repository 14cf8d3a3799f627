//! Unmodified programs on a mounted instance on `nodes` storage nodes.

use crate::support::striped_admin::StripedAdmin;
use crate::support::{
    INSTANCE, Mounted, STRIPE, Temporary, attach, mount_at, need, shell, spec, unmount,
};
use forebay_client::{ClientOptions, Fs};
use forebay_net::auth::PoolKey;
use forebay_protocol::message::SetAttr;
use forebay_store::daemon::{self, Daemon};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

const GIB: u64 = 1 << 30;

/// Defines a test for each check.
#[macro_export]
macro_rules! on_nodes {
    ($nodes:expr) => {
        $crate::on_nodes!($nodes;
            archives_and_copies_are_faithful,
            a_mount_over_tcp_without_descriptors_is_as_faithful,
            a_repository_is_cloned_and_built,
            a_database_keeps_its_transactions,
            fio_verifies_what_it_wrote,
            two_mounts_show_each_others_changes_at_once,
            a_second_client_never_finds_the_first_with_a_stale_cache,
            a_full_instance_says_so_and_recovers_when_files_go,
        );
    };
    ($nodes:expr; $($check:ident),* $(,)?) => {
        $(
            #[test]
            fn $check() {
                $crate::programs::$check($nodes);
            }
        )*
    };
}

/// A tree with everything that an archive preserves.
const TREE: &str = r#"
mkdir -p tree/deep/er; cd tree
for i in $(seq 40); do head -c $((i * 997)) /dev/urandom > "deep/file $i"; done
ln deep/file\ 1 hard; ln -s deep/er soft; ln -s /nowhere dangling
truncate -s 5M sparse; printf x | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
mkfifo pipe; chmod 4751 hard; chmod 1777 deep/er; touch -d '1999-12-31 23:59:59.25' deep/file\ 2
"#;
/// A description of a tree, without what differs between file systems.
const DESCRIBE: &str = r#"find . -printf '%P %y %m %U %G %n %l %Ts %s\n' | grep -v ' d ' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum"#;

pub fn archives_and_copies_are_faithful(nodes: usize) {
    let mounted = Mounted::new(nodes, GIB);
    let outside = mounted.temporary.dir("outside");
    shell(&outside, TREE);
    let original = shell(&outside.join("tree"), DESCRIBE);
    let inside = &mounted.path;
    let from = outside.display();
    shell(inside, &format!("cp -a {from}/tree copied"));
    shell(inside, &format!("mkdir t && tar -C {from} -cf - tree | tar -C t -xpf -"));
    shell(inside, "cp -a copied again && mv again moved && tar -cf tree.tar moved && rm -r moved");
    shell(inside, "tar -xpf tree.tar");
    for copy in ["copied", "t/tree", "moved"] {
        assert_eq!(shell(&inside.join(copy), DESCRIBE), original, "{copy}");
    }
    // A second after the last write the object gets checksums, which need a block on a file system
    // with small inodes.
    let taken = shell(inside, "du -k copied/sparse");
    let kept = taken.starts_with("4\t") || taken.starts_with("8\t");
    assert!(kept, "holes are kept: {taken}");
    need("rsync");
    shell(inside, &format!("rsync -aHAX {from}/tree/ synced/"));
    assert_eq!(shell(&inside.join("synced"), DESCRIBE), original);
    let again = shell(inside, &format!("rsync -aHAXi {from}/tree/ synced/"));
    assert_eq!(again, "", "rsync finds no difference");
    shell(inside, "rm -rf copied t moved synced tree.tar; test -z \"$(ls -A)\"");
}

pub fn a_mount_over_tcp_without_descriptors_is_as_faithful(nodes: usize) {
    let temporary = Temporary::new();
    let key = PoolKey::new(b"a key for tests only").unwrap();
    let start = |node| {
        let mut options = daemon::StoreOptions::new(temporary.dir(&format!("flash{node}")));
        options.tcp = Some(([127, 0, 0, 1], 0).into());
        options.key = Some(key.clone());
        Daemon::start(options).unwrap()
    };
    let daemons: Vec<Daemon> = (0..nodes).map(start).collect();
    let client = ClientOptions { key: Some(key.clone()), ..ClientOptions::default() };
    let addresses: Vec<_> = daemons.iter().flat_map(Daemon::tcp_address).collect();
    let admin = StripedAdmin::connect(addresses.clone(), &client).unwrap();
    admin.create_instance(&spec(GIB), STRIPE).unwrap();
    let fs = Fs::attach(addresses, INSTANCE, client).unwrap();
    let inside = temporary.dir("mnt");
    let mounted = mount_at(fs, &inside);
    let outside = temporary.dir("outside");
    shell(&outside, TREE);
    let original = shell(&outside.join("tree"), DESCRIBE);
    shell(&inside, &format!("cp -a {}/tree copied; cp -a copied again", outside.display()));
    for copy in ["copied", "again"] {
        assert_eq!(shell(&inside.join(copy), DESCRIBE), original, "{copy}");
    }
    shell(&inside, "cp $(type -P true) program; ./program; echo a >> log; echo b >> log; cat log");
    need("fio");
    for engine in ["psync", "mmap"] {
        let fio = "fio --name=v --size=16m --rw=randwrite --bs=4k --verify=crc32c --verify_fatal=1";
        shell(&inside, &format!("{fio} --ioengine={engine} > /dev/null; rm v.*"));
    }
    unmount(mounted);
}

pub fn a_repository_is_cloned_and_built(nodes: usize) {
    ["git", "cc", "make"].into_iter().for_each(need);
    let mounted = Mounted::new(nodes, GIB);
    shell(
        &mounted.path,
        r#"
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q origin; cd origin
        for i in $(seq 30); do printf 'int f%d(void) { return %d; }\n' $i $i > f$i.c; done
        printf 'int f30(void); int main(void) { return f30() != 30; }\n' > main.c
        printf 'OBJ = $(patsubst %%.c,%%.o,$(wildcard *.c))\nprog: $(OBJ)\n\tcc -o $@ $^\n' > Makefile
        git add .; git commit -qm one; git gc -q; cd ..
        git clone -q origin clone; cd clone; make -s -j2; ./prog; test "$(git status --short | grep -vc '\.o$')" = 1
        make -q prog; git fsck --strict 2>&1; git checkout -qb side; rm *.c; git checkout -q -- .
        "#,
    );
}

pub fn a_database_keeps_its_transactions(nodes: usize) {
    need("sqlite3");
    let mounted = Mounted::new(nodes, GIB);
    for journal in ["delete", "wal"] {
        let out = shell(
            &mounted.path,
            &format!(
                r#"
                sqlite3 {journal}.db "pragma journal_mode={journal}; create table t(k integer primary key, v text);"
                for w in 1 2 3; do
                  (for i in $(seq 20); do
                    sqlite3 -cmd '.timeout 20000' {journal}.db "insert into t(v) values(hex(randomblob(500)));"
                  done) &
                done; wait
                sqlite3 {journal}.db 'select count(*) from t; pragma integrity_check;'
                "#
            ),
        );
        assert!(out.ends_with("60\nok\n"), "{journal}: {out}");
    }
}

pub fn fio_verifies_what_it_wrote(nodes: usize) {
    need("fio");
    let mounted = Mounted::new(nodes, GIB);
    for how in ["--rw=randwrite --bs=4k", "--rw=write --bs=1m", "--rw=randwrite --bsrange=512-128k"]
    {
        for engine in ["psync", "mmap", "io_uring"] {
            if engine == "mmap" && how.contains("bsrange") {
                continue;
            }
            shell(
                &mounted.path,
                &format!(
                    "fio --name=v --size=24m --ioengine={engine} {how} --verify=crc32c --do_verify=1 \
                     --verify_fatal=1 --numjobs=2 --fsync_on_close=1 --output-format=terse >/dev/null; rm v.*"
                ),
            );
        }
    }
}

pub fn two_mounts_show_each_others_changes_at_once(nodes: usize) {
    let mounted = Mounted::new(nodes, GIB);
    let second = mounted.temporary.dir("second");
    let other = mount_at(attach(mounted.pool.nodes()), &second);
    let first = &mounted.path;
    for round in 0..50 {
        let (here, there) = if round % 2 == 0 { (first, &second) } else { (&second, first) };
        let name = format!("f{round}");
        assert!(!there.join(&name).exists());
        std::fs::write(here.join(&name), vec![b'x'; round]).unwrap();
        assert_eq!(std::fs::metadata(there.join(&name)).unwrap().len(), round as u64);
        let mut appended = OpenOptions::new().append(true).open(there.join(&name)).unwrap();
        appended.write_all(b"yy").unwrap();
        assert_eq!(std::fs::read(here.join(&name)).unwrap().len(), round + 2);
        std::fs::rename(there.join(&name), there.join("moved")).unwrap();
        assert!(!here.join(&name).exists() && here.join("moved").exists());
    }
    unmount(other);
}

pub fn a_second_client_never_finds_the_first_with_a_stale_cache(nodes: usize) {
    let mounted = Mounted::new(nodes, GIB);
    let dir = &mounted.path;
    for round in 0..3 {
        // As the only client the mount may cache entries…
        let (file, gone) = (format!("file{round}"), format!("gone{round}"));
        std::fs::write(dir.join(&file), "four").unwrap();
        std::fs::write(dir.join(&gone), "").unwrap();
        shell(dir, "ls -l > /dev/null; stat *");
        assert!(!dir.join(format!("new{round}")).exists());
        // …but not any more when another client is attached.
        let fs = attach(mounted.pool.nodes());
        let root = forebay_protocol::Ino::ROOT;
        fs.unlink(root, gone.as_bytes()).unwrap();
        let ino = fs.lookup(root, file.as_bytes()).unwrap().ino;
        let set = SetAttr { mode: Some(0o600), size: Some(2), ..SetAttr::default() };
        fs.set_attr(ino, None, set).unwrap();
        fs.mkdir(root, format!("new{round}").as_bytes(), 0o700).unwrap();
        assert!(!dir.join(&gone).exists());
        let meta = std::fs::metadata(dir.join(&file)).unwrap();
        assert_eq!((meta.len(), meta.mode() & 0o777), (2, 0o600));
        assert!(dir.join(format!("new{round}")).is_dir());
    }
}

pub fn a_full_instance_says_so_and_recovers_when_files_go(nodes: usize) {
    let mounted = Mounted::new(nodes, 16 << 20);
    let dir = &mounted.path;
    let mut file = std::fs::File::create(dir.join("big")).unwrap();
    let mut written = 0u64;
    let error = loop {
        match file.write(&[3; 100_000]) {
            Ok(count) => written += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(written <= 16 << 20 && written > (16 << 20) - 200_000, "{written}");
    drop(file);
    assert!(std::fs::write(dir.join("more"), vec![0; 1 << 20]).is_err());
    std::fs::remove_file(dir.join("big")).unwrap();
    std::fs::write(dir.join("more"), vec![0; 8 << 20]).unwrap();
    shell(dir, "! fallocate -l 12M reserved; fallocate -l 6M reserved; rm reserved more");
    // Each writer reserves space ahead; none may fail because of space that another does not use.
    let mut files: Vec<_> =
        (0..40).map(|i| std::fs::File::create(dir.join(format!("part{i}"))).unwrap()).collect();
    for file in &mut files {
        file.write_all(&[1; 4096]).unwrap();
    }
    for file in &mut files {
        file.write_all(&vec![1; 350_000]).unwrap();
    }
}
