//! The first request of a session, in which both sides choose versions, capabilities and limits.

use crate::abi::{
    InitFlags, InitIn, InitOut, MAJOR_VERSION, MIN_READ_BUFFER, MINOR_VERSION,
    OLDEST_MINOR_VERSION, opcode,
};
use crate::device::Device;
use crate::filesystem::Filesystem;
use crate::incoming::Incoming;
use std::io;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Unit of the largest request.
const PAGE_BYTES: u32 = 4096;
/// Largest write of a session that asks for no other, in bytes.
const DEFAULT_MAX_WRITE: u32 = 128 << 10;
/// The largest write of all, in bytes: the number of its pages has 16 bits, and kernels allow less.
const LARGEST_MAX_WRITE: u32 = 16 << 20;

/// The capabilities that the kernel offers, and those that the file system chooses.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    capabilities: InitFlags,
    chosen: InitFlags,
    max_readahead: u32,
    max_write: u32,
    max_background: u16,
    max_stack_depth: u32,
}

impl KernelConfig {
    fn new(init: &InitIn) -> KernelConfig {
        let low = InitFlags::from_bits_retain(u64::from(init.flags));
        let extended = low.contains(InitFlags::INIT_EXT);
        let high = if extended { u64::from(init.flags2) << 32 } else { 0 };
        let capabilities = low | InitFlags::from_bits_retain(high);
        let always = InitFlags::BIG_WRITES | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        KernelConfig {
            capabilities,
            chosen: always & capabilities,
            max_readahead: init.max_readahead,
            max_write: DEFAULT_MAX_WRITE,
            max_background: 16,
            max_stack_depth: 0,
        }
    }

    /// Uses a capability. Returns whether the kernel has it.
    pub fn choose(&mut self, capability: InitFlags) -> bool {
        let has = self.capabilities.contains(capability);
        if has {
            self.chosen |= capability;
        }
        has
    }

    /// The largest write, in bytes, at least one page. Limits reads, too.
    pub fn set_max_write(&mut self, bytes: u32) {
        self.max_write = bytes.clamp(PAGE_BYTES, LARGEST_MAX_WRITE);
    }

    /// Limits what the kernel reads ahead of a program, in bytes.
    pub fn limit_readahead(&mut self, bytes: u32) {
        self.max_readahead = self.max_readahead.min(bytes);
    }

    /// Number of requests that no process waits for, at a time.
    pub fn set_max_background(&mut self, requests: u16) {
        self.max_background = requests.max(1);
    }

    /// The kernel accesses registered files directly, unless they are on a stack of more than
    /// `depth - 1` file systems, which is at most 1. Returns whether it can.
    pub fn choose_passthrough(&mut self, depth: u32) -> bool {
        let can = self.choose(InitFlags::PASSTHROUGH);
        if can {
            self.max_stack_depth = depth.clamp(1, 2);
        }
        can
    }

    fn reply(&self) -> InitOut {
        let flags = self.chosen.bits();
        InitOut {
            major: MAJOR_VERSION,
            minor: MINOR_VERSION,
            max_readahead: self.max_readahead,
            flags: flags as u32,
            max_background: self.max_background,
            congestion_threshold: (u32::from(self.max_background) * 3 / 4) as u16,
            max_write: self.max_write,
            time_gran: 1,
            max_pages: self.max_write.div_ceil(PAGE_BYTES) as u16,
            flags2: (flags >> 32) as u32,
            max_stack_depth: self.max_stack_depth,
            ..InitOut::default()
        }
    }
}

/// The result of the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The largest write, in bytes.
    pub max_write: u32,
}

fn unsupported(init: &InitIn) -> io::Error {
    let InitIn { major, minor, .. } = init;
    let message = format!("the kernel's FUSE protocol {major}.{minor} is older than 7.31");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Receives the first request, and replies to it.
pub fn negotiate<F: Filesystem>(device: &Arc<Device>, fs: &F) -> io::Result<Negotiated> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut buffer = [0; MIN_READ_BUFFER];
    loop {
        let received = device.receive(&mut buffer)?;
        let length = received.ok_or(io::ErrorKind::NotConnected)?;
        let incoming = Incoming::parse(&buffer[..length], device);
        let mut incoming = incoming.ok_or_else(|| invalid("the first request is incomplete"))?;
        if incoming.header().opcode != opcode::INIT {
            incoming.reply().error(libc::EIO);
            return Err(invalid("the first request does not start a session"));
        }
        let Some(init) = incoming.value::<InitIn>() else {
            incoming.reply().error(libc::EPROTO);
            return Err(invalid("the first request is incomplete"));
        };
        if init.major > MAJOR_VERSION {
            // The kernel then asks again with this version.
            let version = InitOut { major: MAJOR_VERSION, ..InitOut::default() };
            device.reply(incoming.header().unique, 0, [version.as_bytes(), &[]]);
            continue;
        }
        if init.major < MAJOR_VERSION || init.minor < OLDEST_MINOR_VERSION {
            incoming.reply().error(libc::EPROTO);
            return Err(unsupported(&init));
        }
        let mut config = KernelConfig::new(&init);
        if let Err(error) = fs.init(&mut config) {
            incoming.reply().error(error.raw_os_error().unwrap_or(libc::EIO));
            return Err(error);
        }
        tracing::debug!(
            minor = init.minor,
            chosen = ?config.chosen,
            others = ?(config.capabilities - config.chosen),
            "FUSE session"
        );
        device.reply(incoming.header().unique, 0, [config.reply().as_bytes(), &[]]);
        return Ok(Negotiated { max_write: config.max_write });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_beyond_32_bits_need_the_extension() {
        let flags2 = (InitFlags::PASSTHROUGH.bits() >> 32) as u32;
        let mut old = KernelConfig::new(&InitIn { flags2, ..InitIn::default() });
        assert!(!old.choose_passthrough(1));
        assert_eq!(old.reply().max_stack_depth, 0);
        let flags = InitFlags::INIT_EXT.bits() as u32;
        let mut new = KernelConfig::new(&InitIn { flags, flags2, ..InitIn::default() });
        assert!(new.choose_passthrough(1) && !new.choose(InitFlags::POSIX_ACL));
        let reply = new.reply();
        assert_eq!((reply.flags, reply.flags2, reply.max_stack_depth), (flags, flags2, 1));
    }

    #[test]
    fn largest_write_has_a_page_at_least() {
        let mut config = KernelConfig::new(&InitIn::default());
        config.set_max_write(1);
        assert_eq!((config.reply().max_write, config.reply().max_pages), (4096, 1));
        config.set_max_write(1 << 20);
        assert_eq!((config.reply().max_write, config.reply().max_pages), (1 << 20, 256));
    }
}
