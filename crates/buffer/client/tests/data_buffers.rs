//! Memory of a storage daemon's data connections.

use crate::support;
use forebay_client::{ClientOptions, Fs};
use std::path::Path;
use std::time::{Duration, Instant};
use support::process::{Process, key};
use support::{INSTANCE, READ_WRITE, Temporary, make_instance};

const MIB: u64 = 1 << 20;
const CLIENTS: usize = 32;

#[test]
fn idle_data_connections_hold_no_buffers() {
    let temporary = Temporary::new();
    let process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), 4096 * MIB);
    let idle = process.memory();
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let clients: Vec<Fs> = (0..CLIENTS)
        .map(|_| Fs::attach(process.remote(), INSTANCE, options.clone()).unwrap())
        .collect();
    // An append is received as a whole.
    let append = |(number, fs): (usize, &Fs)| {
        let name = format!("f{number}");
        let file = fs.create_path(Path::new(&name), 0o600, READ_WRITE).unwrap().file;
        assert_eq!(file.append(&vec![1; 4 << 20]), Ok(4 << 20));
        file
    };
    let files: Vec<_> = clients.iter().enumerate().map(append).collect();
    let begun = Instant::now();
    loop {
        let held = process.memory().saturating_sub(idle);
        if held < CLIENTS as u64 * MIB {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{} MiB", held / MIB);
        std::thread::sleep(Duration::from_millis(100));
    }
    // They are used again.
    assert!(files.iter().all(|file| file.append(b"more") == Ok(4)));
}
