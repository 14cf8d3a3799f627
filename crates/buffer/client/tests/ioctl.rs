//! Unknown `ioctl` calls, which ordinary programs make, are refused and not logged.

use crate::support;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::Mounted;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Log lines so far.
static LINES: AtomicUsize = AtomicUsize::new(0);

struct CountLines;

impl Subscriber for CountLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        eprintln!("{event:?}");
        LINES.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn unknown_ioctls_are_refused_and_not_logged() {
    tracing::subscriber::set_global_default(CountLines).unwrap();
    tracing::warn!("counted");
    assert_eq!(LINES.load(Ordering::Relaxed), 1);
    let mounted = Mounted::new(1, 1 << 24);
    let file = File::create(mounted.path.join("f")).unwrap();
    let before = LINES.load(Ordering::Relaxed);
    for _ in 0..10 {
        // SAFETY: the kernel writes at most the terminal's attributes to the buffer.
        let result =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TCGETS, [0u8; 256].as_mut_ptr()) };
        assert_eq!(result, -1);
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!(errno, Some(libc::ENOTTY));
    }
    assert_eq!(LINES.load(Ordering::Relaxed), before);
}
