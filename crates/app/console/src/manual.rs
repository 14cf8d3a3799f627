//! Manual pages and shell completions of the programs, made of the definitions of their command
//! lines when a package is built.

use crate::print_stderr;
use clap::{Command, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// First argument that requests them; the second one is a directory.
const OPTION: &str = "--generate-manual";

/// Writes the manual pages and the completions of a program if its arguments request that, and
/// returns the exit code. `section` is the manual's section, 1 for commands and 8 for daemons.
pub fn generate_if_requested(command: Command, section: u8) -> Option<ExitCode> {
    let directory = requested_directory(std::env::args_os().skip(1))?;
    Some(match generate(command, section, &directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_stderr(format_args!("{}: {error}", directory.display()));
            ExitCode::FAILURE
        }
    })
}

fn requested_directory(mut arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let requested = arguments.next().is_some_and(|first| first == OPTION);
    arguments.next().filter(|_| requested).map(PathBuf::from)
}

/// Writes a page for the program and for each of its subcommands to `directory/man`, and completions
/// for each shell to a directory of the shell's name.
fn generate(mut command: Command, section: u8, directory: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    for shell in Shell::value_variants() {
        let own = directory.join(shell.to_string());
        std::fs::create_dir_all(&own)?;
        clap_complete::generate_to(*shell, &mut command, &name, own)?;
    }
    let pages = directory.join("man");
    std::fs::create_dir_all(&pages)?;
    command.build();
    write_pages(&command, &name, section, &pages)
}

fn write_pages(command: &Command, name: &str, section: u8, pages: &Path) -> io::Result<()> {
    let page = command.clone().disable_help_subcommand(true);
    let page = clap_mangen::Man::new(page).title(name.to_uppercase()).section(section.to_string());
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(pages.join(format!("{name}.{section}")), text)?;
    for sub in command.get_subcommands() {
        if sub.is_hide_set() || sub.get_name() == "help" {
            continue;
        }
        let name = format!("{name}-{}", sub.get_name());
        write_pages(sub, &name, section, pages)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn each_visible_command_has_a_page_and_each_shell_completions() {
        let command = Command::new("pump")
            .subcommand(
                Command::new("start").about("Start it").arg(Arg::new("speed").long("speed")),
            )
            .subcommand(Command::new("secret").hide(true));
        let directory = tempfile::tempdir().unwrap();
        generate(command, 1, directory.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(read("man/pump.1").contains("pump"));
        assert!(read("man/pump-start.1").contains("speed"));
        assert_eq!(std::fs::read_dir(directory.path().join("man")).unwrap().count(), 2);
        assert!(read("bash/pump.bash").contains("--speed"));
        assert!(read("zsh/_pump").contains("--speed"));
        assert!(read("fish/pump.fish").contains("speed"));
    }

    #[test]
    fn only_the_first_argument_requests_them() {
        let directory = |words: &[&str]| requested_directory(words.iter().map(OsString::from));
        assert_eq!(directory(&[OPTION, "/x"]), Some("/x".into()));
        for words in [&[OPTION][..], &["run", OPTION, "/x"], &[]] {
            assert_eq!(directory(words), None, "{words:?}");
        }
    }
}
