//! The objects of an instance and the space of each, which a daemon needs before it serves.

use super::{FOLDERS, STAT_BLOCK_BYTES, folder_name};
use forebay_protocol::Ino;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Folders that are read at the same time. The threads wait for the device, and flash reads several
/// blocks at once.
const THREADS: u64 = 16;

/// The inode numbers of all objects below the directory of an instance, with the bytes that they
/// take, in no order.
pub(super) fn list_objects(instance: &Path) -> io::Result<Vec<(Ino, u64)>> {
    let of_thread = |thread: u64| {
        let mut found = Vec::new();
        for number in (thread..FOLDERS).step_by(THREADS as usize) {
            list_folder(&instance.join(folder_name(Ino(number))), &mut found)?;
        }
        Ok(found)
    };
    std::thread::scope(|scope| {
        let start = |thread| {
            let builder = std::thread::Builder::new().name("forebay-list".to_owned());
            builder.spawn_scoped(scope, move || of_thread(thread))
        };
        let threads = (0..THREADS).map(start).collect::<io::Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for thread in threads {
            let found: io::Result<_> =
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.append(&mut found?);
        }
        Ok(all)
    })
}

/// Adds the objects of a folder.
fn list_folder(folder: &Path, found: &mut Vec<(Ino, u64)>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let ino = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
        if let Some(ino) = ino {
            found.push((Ino(ino), entry.metadata()?.blocks() * STAT_BLOCK_BYTES));
        }
    }
    Ok(())
}
