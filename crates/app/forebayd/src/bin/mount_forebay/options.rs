//! The options of a mount.

use std::path::PathBuf;

use forebay_job_script::Capacity;
use rustix::mount::MountFlags;

/// Options that are for `mount` itself, or the default.
const IGNORED: [&str; 14] = [
    "defaults",
    "suid",
    "dev",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "allow_other",
];
/// Names and values of the kernel's options.
const KERNEL_FLAGS: [(&str, MountFlags, bool); 12] = [
    ("nosuid", MountFlags::NOSUID, true),
    ("nodev", MountFlags::NODEV, true),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("strictatime", MountFlags::RELATIME, false),
];

/// The options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The pool's configuration, unless it is the default one.
    pub pool: Option<PathBuf>,
    /// Capacity of a new instance in directories, in bytes.
    pub size: Option<u64>,
    /// Permissions of the root of a new instance in directories.
    pub mode: u16,
    pub read_only: bool,
    /// The kernel checks permissions, too.
    pub kernel_permissions: bool,
    /// The kernel accesses data objects directly where possible.
    pub passthrough: bool,
    /// Threads that serve requests.
    pub threads: Option<usize>,
    /// Only flags of an existing mount change.
    pub remount: bool,
    /// Flags for the kernel, besides `ro`.
    pub kernel_flags: MountFlags,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pool: None,
            size: None,
            mode: 0o755,
            read_only: false,
            kernel_permissions: true,
            passthrough: true,
            threads: None,
            remount: false,
            kernel_flags: MountFlags::NOSUID | MountFlags::NODEV,
        }
    }
}

impl Options {
    /// Parses lists of options. `sloppy`: unknown ones have no effect.
    ///
    /// For `remount`, `mount` passes all options of the mount, with those of the kernel's FUSE.
    pub fn parse<'a>(
        lists: impl IntoIterator<Item = &'a str>,
        sloppy: bool,
    ) -> Result<Options, String> {
        let all: Vec<&str> = lists.into_iter().flat_map(|list| list.split(',')).collect();
        let mut options = Options { remount: all.contains(&"remount"), ..Options::default() };
        for option in &all {
            let known = options.set(option)?;
            if !known && !sloppy && !options.remount {
                return Err(format!("unknown option `{option}`"));
            }
        }
        if !options.remount {
            options.restrict(&all);
        }
        Ok(options)
    }

    /// `nosuid` and `nodev` prevail over `allow_suid` and `allow_dev`: `mount` passes options of the
    /// kernel first, wherever they were, so the last one is not the one that was meant. For `remount`
    /// they may be those that the mount has so far.
    fn restrict(&mut self, all: &[&str]) {
        for (name, flag) in [("nosuid", MountFlags::NOSUID), ("nodev", MountFlags::NODEV)] {
            if all.contains(&name) {
                self.kernel_flags.insert(flag);
            }
        }
    }

    /// Sets an option. `false`: there is none of this name.
    fn set(&mut self, option: &str) -> Result<bool, String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let flag = KERNEL_FLAGS.iter().find(|(known, ..)| *known == option);
        if let Some((_, flag, is_set)) = flag {
            self.kernel_flags.set(*flag, *is_set);
            return Ok(true);
        }
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("remount", None) => {}
            ("allow_suid", None) => self.kernel_flags.remove(MountFlags::NOSUID),
            ("allow_dev", None) => self.kernel_flags.remove(MountFlags::NODEV),
            ("default_permissions", None) => self.kernel_permissions = true,
            ("nodefault_permissions", None) => self.kernel_permissions = false,
            ("nopassthrough", None) => self.passthrough = false,
            ("pool", Some(file)) => self.pool = Some(file.into()),
            ("size", Some(size)) => self.size = Some(parse_size(size)?),
            ("mode", Some(mode)) => self.mode = parse_mode(mode)?,
            ("threads", Some(count)) => self.threads = Some(parse_threads(count)?),
            _ => return Ok(IGNORED.contains(&option) || option.is_empty() || is_comment(name)),
        }
        Ok(true)
    }
}

/// Options for other programs, by the convention of `fstab`.
fn is_comment(name: &str) -> bool {
    name == "comment" || name.starts_with("x-") || name.starts_with("X-")
}

fn parse_size(text: &str) -> Result<u64, String> {
    match Capacity::parse(text)? {
        Capacity::Bytes(bytes) => Ok(bytes.0),
        Capacity::Nodes(_) => Err(format!("`size={text}`: write a size such as `size=10GiB`")),
    }
}

fn parse_mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("`mode={text}`: write permissions such as `mode=1777`"))
}

fn parse_threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=256).contains(count));
    count.ok_or_else(|| format!("`threads={text}`: write a number from 1 to 256"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn parse(list: &str) -> Result<Options, String> {
        Options::parse([list], false)
    }

    #[test]
    fn options_are_parsed() {
        let options = parse("rw,size=2GiB,mode=1777,pool=/p.toml,threads=3,x-systemd.automount");
        let options = options.unwrap();
        assert_eq!((options.size, options.mode, options.threads), (Some(2 << 30), 0o1777, Some(3)));
        assert_eq!(options.pool.unwrap(), PathBuf::from("/p.toml"));
        assert!(parse("ro,rw,ro").unwrap().read_only && !parse("ro,rw").unwrap().read_only);
        assert_eq!(parse("").unwrap(), Options::default());
        let flags = |list| parse(list).unwrap().kernel_flags;
        assert_eq!(flags("rw,noexec"), MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC);
        assert_eq!(flags("allow_suid,allow_dev,noatime"), MountFlags::NOATIME);
        assert_eq!(flags("remount,ro,user_id=0"), MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(flags("remount,allow_suid"), MountFlags::NODEV);
    }

    #[test]
    fn restrictions_prevail_over_permissions_except_for_remount() {
        let flags = |list| parse(list).unwrap().kernel_flags;
        // So `mount` passes `allow_suid,allow_dev,nosuid`.
        assert_eq!(flags("rw,nosuid,allow_suid,allow_dev"), MountFlags::NOSUID);
        assert_eq!(flags("rw,nodev,allow_suid,allow_dev"), MountFlags::NODEV);
        assert_eq!(flags("remount,rw,nosuid,nodev,allow_suid"), MountFlags::NODEV);
    }

    #[test]
    fn wrong_options_are_refused() {
        for wrong in ["sise=1GiB", "size=1", "mode=9", "mode=10000", "threads=0", "size", "ro=1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(Options::parse(["sise=1GiB"], true).is_ok());
    }
}
