//! Prints a machine: `cargo run -p forebay-machine-file --example show -- trinity [--sources]`.

use forebay_machine_file::machine::Machine;
use forebay_machine_file::{builtin_machines, describe};

fn main() -> std::process::ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for (name, title) in builtin_machines() {
            println!("{name:16}{title}");
        }
        return std::process::ExitCode::SUCCESS;
    };
    match Machine::load(&name) {
        Ok(machine) if std::env::args().any(|a| a == "--sources") => {
            print!("{}", describe::list_sources(&machine));
            std::process::ExitCode::SUCCESS
        }
        Ok(machine) => {
            print!("{}", describe::describe(&machine));
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::from(2)
        }
    }
}
