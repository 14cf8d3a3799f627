//! The cases of `forebay validate` that simulate messages and traffic.

use super::output::Output;
use super::replicates::{SharedProgress, run_all, threads_of_each};
use super::{Cli, Command, SimCommand};
use crate::validate::messages::{self, MessageCase, MessageCheck};
use crate::validate::published::{Published, measurement};
use crate::validate::verdict::Row;
use clap::Parser;
use forebay_console::Failure;
use forebay_machine::estimate::Quantity;
use forebay_machine::study::Progress;
use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;

/// The command of a case, parsed.
pub(super) struct MessageCommand(Box<SimCommand>);

impl MessageCommand {
    /// The command of a case with numbers of the machine replaced, and a first seed.
    pub(super) fn new(case: &MessageCase, set: &[Setting], seed: u64) -> Result<Self, Failure> {
        let words = case.command.split_whitespace().map(String::from);
        let mut line: Vec<String> = ["forebay", "sim"].map(String::from).into_iter().collect();
        line.extend(words);
        // The options follow the name of the study.
        let mut options = vec!["--seed".to_string(), seed.to_string()];
        for setting in set {
            options.extend(["--set".to_string(), setting.to_string()]);
        }
        let at = 3.min(line.len());
        line.splice(at..at, options);
        match Cli::try_parse_from(line) {
            Ok(Cli { command: Command::Sim(command), .. }) => Ok(MessageCommand(command)),
            Ok(_) => unreachable!("the words of a simulation are one"),
            Err(e) => {
                let text = format!("validation/messages.toml: {}: {}", case.id, e.render());
                Err(Failure::Failed(text))
            }
        }
    }

    /// The machine with the replaced numbers.
    pub(super) fn machine(&self) -> Result<Machine, Failure> {
        self.0.swept().sim().machine()
    }

    /// The quantities of one simulation, with the seed that many after the first.
    pub(super) fn quantities(
        &self,
        replicate: u32,
        threads: usize,
        progress: Progress<'_>,
    ) -> Result<Vec<Quantity>, Failure> {
        Ok(self.0.swept().sample(replicate, threads, progress)?.quantities)
    }
}

/// Simulates a case with all seeds, from the first on; the rows of its checks.
pub(super) fn rows(
    case: &MessageCase,
    set: &[Setting],
    (first_seed, seeds): (u64, u32),
    threads: usize,
    table: &[Published],
    output: &Output,
) -> Result<Vec<Row>, Failure> {
    let command = MessageCommand::new(case, set, first_seed)?;
    let count = seeds as usize;
    let progress = SharedProgress::start(&case.id, count, output.display);
    let samples = run_all(count, threads, |replicate| {
        let shown = |time, done, events| progress.update(replicate, time, done, events);
        let of_each = threads_of_each(threads, count);
        let quantities = command.quantities(replicate as u32, of_each, &shown);
        progress.end(replicate);
        quantities
    })?;
    drop(progress);
    let numbers = command.machine()?.provenance;
    let row = |check: &MessageCheck| {
        messages::compare(case, check, measurement(&check.row, table)?, &numbers, &samples)
    };
    case.check.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::options::setting;

    #[test]
    fn every_command_is_valid_with_a_replaced_number() {
        let other = setting("client.mpi_overhead=600ns").unwrap();
        for case in messages::all().unwrap() {
            let command = MessageCommand::new(&case, std::slice::from_ref(&other), 3).unwrap();
            command.0.swept().check().unwrap();
            let numbers = command.machine().unwrap().provenance;
            let found = numbers.iter().find(|n| n.key == other.key).unwrap();
            assert_eq!(found.value, "600ns", "{}", case.id);
        }
    }
}
