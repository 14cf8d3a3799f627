//! libfuse's example `passthrough_ll`, compiled from the source that Debian's libfuse3-dev installs.

use crate::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SOURCE: &str = "/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c";

/// A mounted passthrough_ll. Dropping it unmounts.
pub struct Passthrough {
    child: Child,
    at: PathBuf,
}

fn device_of(path: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(path)?.dev())
}

/// Compiles the program in `dir`.
fn compile(dir: &Path) -> Outcome<PathBuf> {
    let hint = "; scripts/setup.sh bench installs libfuse3-dev";
    let mut source = PathBuf::from(SOURCE);
    if !source.exists() {
        let packed = source.with_extension("c.gz");
        let unpacked = Command::new("gzip").args(["-d", "-c"]).arg(&packed).output()?;
        if !unpacked.status.success() {
            return Err(format!("{SOURCE} does not exist{hint}").into());
        }
        source = dir.join("passthrough_ll.c");
        fs::write(&source, unpacked.stdout)?;
    }
    let flags = Command::new("pkg-config").args(["fuse3", "--cflags", "--libs"]).output()?;
    let program = dir.join("passthrough_ll");
    let mut compiler = Command::new("cc");
    compiler.arg("-O2").arg("-w").arg(&source).arg("-I").arg(Path::new(SOURCE).with_file_name(""));
    compiler.arg("-o").arg(&program);
    compiler.args(String::from_utf8_lossy(&flags.stdout).split_whitespace());
    if flags.status.success() && compiler.status()?.success() {
        Ok(program)
    } else {
        Err(format!("it cannot be compiled{hint}").into())
    }
}

impl Passthrough {
    /// Mounts the directory `source` at `at`. `options` are further options of the program.
    pub fn start(dir: &Path, source: &Path, at: &Path, options: &str) -> Outcome<Passthrough> {
        let mut command = Command::new(compile(dir)?);
        let source = format!("source={}", source.display());
        command.args(["-f", "-o", &source]).args(options.split_whitespace()).arg(at);
        let before = device_of(at)?;
        let child = command.stdin(Stdio::null()).spawn()?;
        let mut mounted = Passthrough { child, at: at.to_owned() };
        for _ in 0..500 {
            if device_of(at)? != before {
                return Ok(mounted);
            }
            if mounted.child.try_wait()?.is_some() {
                return Err("it has ended".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("it does not mount".into())
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        // Fails if it is not mounted.
        let _ = Command::new("umount").arg(&self.at).stderr(Stdio::null()).status();
        for _ in 0..500 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
