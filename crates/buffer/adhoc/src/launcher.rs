//! Starting a process on another host: with Slurm, with ssh, or with a given command.

use std::path::Path;
use std::process::Command;

use forebay_daemon::host_name;

/// Variables of a job that would change the step of a storage daemon.
const STEP_VARIABLES: [&str; 12] = [
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_GPU",
    "SLURM_DISTRIBUTION",
    "SLURM_HINT",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GRES",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_LABELIO",
    "SLURM_THREADS_PER_CORE",
];

/// The way to start a process on a host. The process gets standard input, output and error of the
/// launcher's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `srun`: a job step on the host, which shares the job's resources with other steps.
    Srun,
    /// `ssh` without questions; on this host nothing.
    Ssh,
    /// These words, the host, and the process's own words.
    Command(Vec<String>),
}

impl Launcher {
    /// `srun`, `ssh`, or the words of a command.
    ///
    /// # Errors
    /// The text is empty.
    pub fn parse(text: &str) -> Result<Launcher, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match words.as_slice() {
            [] => Err("write `srun`, `ssh`, or a command that takes a host and a command".into()),
            [one] if one == "srun" => Ok(Launcher::Srun),
            [one] if one == "ssh" => Ok(Launcher::Ssh),
            _ => Ok(Launcher::Command(words)),
        }
    }

    /// `srun` in a job of Slurm, else `ssh`.
    pub fn from_environment() -> Launcher {
        match std::env::var_os("SLURM_JOB_ID") {
            Some(job) if !job.is_empty() => Launcher::Srun,
            _ => Launcher::Ssh,
        }
    }

    /// As [`parse`](Self::parse) reads it.
    pub fn words(&self) -> String {
        match self {
            Launcher::Srun => "srun".to_owned(),
            Launcher::Ssh => "ssh".to_owned(),
            Launcher::Command(words) => words.join(" "),
        }
    }

    /// The command that starts `program` with `arguments` on `host`. None of them is secret.
    pub fn command(&self, host: &str, program: &Path, arguments: &[&str]) -> Command {
        let mut command = match self {
            Launcher::Srun => {
                let mut command = Command::new("srun");
                command.args(["--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1"]);
                command.args(["--cpus-per-task=1", "--mem=0", "--cpu-bind=none", "--gres=none"]);
                command.args(["--mpi=none", "--input=all", "--quiet", "--chdir=/"]);
                command.arg(format!("--nodelist={host}"));
                for name in STEP_VARIABLES {
                    command.env_remove(name);
                }
                command
            }
            Launcher::Ssh if is_this_host(host) => {
                let mut command = Command::new(program);
                command.args(arguments);
                return command;
            }
            Launcher::Ssh => {
                let mut command = Command::new("ssh");
                command.args(["-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "--", host]);
                // The shell of the other host splits what ssh sends it.
                command.arg(quote(&program.to_string_lossy()));
                command.args(arguments.iter().map(|argument| quote(argument)));
                return command;
            }
            Launcher::Command(words) => {
                let mut words = words.iter();
                let mut command = Command::new(words.next().map_or("false", String::as_str));
                command.args(words).arg(host);
                command
            }
        };
        command.arg(program).args(arguments);
        command
    }
}

/// Whether `name` is this host's name, with or without its domain.
fn is_this_host(name: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let own = host_name();
    let is_address = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    name == own || (!is_address && (name == short(&own) || short(name) == own))
}

/// A word for a shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn command_gets_host_and_words_and_ssh_quotes_them() {
        let parsed = Launcher::parse("rsh -l me").unwrap();
        let program = Path::new("/opt/my tools/forebay");
        let started = parsed.command("n1", program, &["adhoc", "node"]);
        assert_eq!(
            words(&started),
            ["rsh", "-l", "me", "n1", "/opt/my tools/forebay", "adhoc", "node"]
        );
        let started = words(&Launcher::Ssh.command("other.example", program, &["node"]));
        assert_eq!(
            started[started.len() - 3..],
            ["other.example", "'/opt/my tools/forebay'", "node"]
        );
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert!(Launcher::parse(" ").is_err());
    }

    #[test]
    fn ssh_starts_the_process_of_this_host_directly() {
        let started = Launcher::Ssh.command(&host_name(), Path::new("/bin/forebay"), &["node"]);
        assert_eq!(words(&started), ["/bin/forebay", "node"]);
    }

    #[test]
    fn srun_starts_one_task_that_shares_the_resources_of_the_job() {
        let started = words(&Launcher::Srun.command("n7", Path::new("/bin/forebay"), &["node"]));
        for expected in ["srun", "--overlap", "--nodelist=n7", "--ntasks=1", "--input=all"] {
            assert!(started.iter().any(|word| word == expected), "{expected}");
        }
        assert_eq!(started[started.len() - 2..], ["/bin/forebay", "node"]);
    }
}
