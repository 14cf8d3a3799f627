//! Machine files.

mod builtin;
mod errors;
mod machine_file;
mod settings;
mod structures;
