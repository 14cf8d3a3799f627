//! Speed of the buffer, compared with the underlying file system and with GlusterFS, in one run:
//! `make bench`, or `cargo bench -p forebay-client --bench buffer -- [options]`.
//!
//! Daemons, mounts and clients are separate processes. In each round every contestant does the same
//! work once, one after another. A ratio is the median of the ratios of the rounds, so that a
//! disturbance of the machine affects both sides; a rate is the median of the rates of the rounds.
//! With `--server-core` the daemons have the first processor for themselves, and clients the others.
//! With `--daemon-share PERCENT` each daemon has at most this part of a processor, so that a machine with
//! few processors shows whether two daemons do more than one.

mod cases;
mod command_line;
mod cpu_limit;
mod gluster;
mod process;
mod processors;
mod report;
mod round_trips;
mod site;
#[allow(dead_code)] // the tests use the rest
#[path = "../../tests/support/striped_admin.rs"]
mod striped_admin;
mod work;

use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: buffer [--disk DIRECTORY] [--memory DIRECTORY] [--rounds N] [--quick] \
    [--only TEXT] [--no-gluster] [--server-core] \
    [--daemon-share PERCENT] [--json FILE]";

fn measure(arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let (mut divisor, mut setup) = (1, site::Setup::default());
    let options =
        command_line::parse(arguments, USAGE, "buffer.json", |option, options, value| {
            match option {
                "--quick" => (divisor, options.rounds) = (8, 1),
                "--no-gluster" => setup.gluster = false,
                "--server-core" => setup.server_core = Some(processors::leave_one_to_daemons()?),
                "--daemon-share" => setup.daemon_share = Some(value()?.parse()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
    cases::measure_all(&options, divisor, setup)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    command_line::exit_code(match arguments.peek().map(String::as_str) {
        Some("client") => work::run_client(),
        Some("daemon") => site::run_daemon(arguments.skip(1)),
        Some("mount") => site::run_mount(arguments.skip(1)),
        Some("stream") => work::run_stream_receiver(),
        _ => measure(arguments),
    })
}
