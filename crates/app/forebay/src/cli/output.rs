//! The outputs of a simulation: standard output, a JSON file, a run directory.

use crate::console::print_stdout;
use crate::csv_files::{self, Part};
use crate::plot::palette::PAPER;
use crate::plot::png;
use crate::plot::svg::Svg;
use crate::progress::Display;
use crate::report::Inputs;
use crate::run_directory::{RunDir, RunDirPath, check_writable, write_file};
use clap::Args;
use forebay_console::Failure;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The version in result documents.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// The run directory, which must not exist [default: runs/COMMAND-MACHINE-N]
    #[arg(long, value_name = "DIR", conflicts_with = "no_out")]
    out: Option<PathBuf>,
    /// Write no run directory
    #[arg(long)]
    no_out: bool,
    /// Also write the result document to a file, or with `-` to standard output and nothing else
    /// there
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// The outputs of one command, checked before the simulation starts.
pub(super) struct Output {
    directory: Option<RunDir>,
    json: Option<PathBuf>,
    recorded_lines: String,
    /// Display of progress.
    pub(super) display: Display,
}

/// One set of result files.
pub(super) struct Files<'a> {
    pub(super) inputs: &'a Inputs,
    pub(super) table: String,
    /// The parts of the run, for CSV files.
    pub(super) parts: Vec<Part<'a>>,
    pub(super) plot: Svg,
    pub(super) report: String,
    /// Whether to write the use of each link.
    pub(super) links: bool,
}

impl OutputArgs {
    /// Whether the result document goes to the file `path`.
    pub(super) fn json_is(&self, path: &Path) -> bool {
        let place = |path: &Path| {
            path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or(path.to_owned())
        };
        self.json.as_deref().is_some_and(|json| place(json) == place(path))
    }

    /// Checks the paths and prepares the run directory; `stem` is its default name.
    pub(super) fn prepare(&self, stem: &str) -> Result<Output, Failure> {
        let json = self.json.clone();
        if let Some(path) = json.as_deref().filter(|p| p.as_os_str() != "-") {
            check_output_file("--json", path)?;
        }
        let directory = match (&self.out, self.no_out) {
            (_, true) => None,
            (Some(path), _) => Some(RunDir::create(RunDirPath::Exactly(path.clone()))?),
            (None, _) => Some(RunDir::create(RunDirPath::Numbered(stem.to_string()))?),
        };
        Ok(Output {
            directory,
            json,
            recorded_lines: String::new(),
            display: Display::choose(self.quiet),
        })
    }
}

impl Output {
    fn json_only(&self) -> bool {
        self.json.as_deref().is_some_and(|p| p.as_os_str() == "-")
    }

    /// Whether there is a run directory.
    pub(super) fn has_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// Prints a line and records it for `table.txt`.
    pub(super) fn print_and_record(&mut self, line: &str) -> Result<(), Failure> {
        self.recorded_lines.push_str(line);
        self.recorded_lines.push('\n');
        self.print_line(line)
    }

    /// Prints a line.
    pub(super) fn print_line(&self, line: &str) -> Result<(), Failure> {
        if self.json_only() { Ok(()) } else { print_stdout(&format!("{line}\n")) }
    }

    /// All recorded lines.
    pub(super) fn recorded(&self) -> &str {
        &self.recorded_lines
    }

    /// Adds a file to the run directory, if there is one; `folder` is empty for its top.
    pub(super) fn write(
        &self,
        folder: &str,
        name: &str,
        content: impl AsRef<[u8]>,
    ) -> Result<(), Failure> {
        match &self.directory {
            Some(directory) => directory.write(folder, name, content),
            None => Ok(()),
        }
    }

    /// Adds the files of one result to the run directory.
    pub(super) fn write_result_files(
        &self,
        folder: &str,
        document: &impl Serialize,
        files: &Files<'_>,
    ) -> Result<(), Failure> {
        if self.directory.is_none() {
            return Ok(());
        }
        self.write_inputs(folder, files.inputs)?;
        self.write(folder, "summary.json", to_json(document)?)?;
        self.write(folder, "table.txt", &files.table)?;
        self.write(folder, "series.csv", csv_files::series(&files.parts)?)?;
        self.write_plot(folder, &files.plot)?;
        if files.links {
            self.write(folder, "links.csv", csv_files::links(&files.parts)?)?;
        }
        self.write(folder, "report.html", &files.report)
    }

    /// Adds the picture to the run directory, if there is one.
    pub(super) fn write_plot(&self, folder: &str, plot: &Svg) -> Result<(), Failure> {
        if self.directory.is_none() {
            return Ok(());
        }
        let svg = plot.document(PAPER.surface);
        self.write(folder, "plot.png", png::render(&svg)?)?;
        self.write(folder, "plot.svg", svg)
    }

    /// Adds everything the run was given to the run directory.
    pub(super) fn write_inputs(&self, folder: &str, inputs: &Inputs) -> Result<(), Failure> {
        let settings: serde_json::Map<String, serde_json::Value> =
            inputs.settings.iter().map(|(n, v)| (n.to_string(), v.clone().into())).collect();
        let given = serde_json::json!({ "command": inputs.command, "settings": settings });
        self.write(folder, "inputs.json", to_json(&given)?)?;
        if !inputs.machine_text.is_empty() {
            self.write(folder, "machine.txt", &inputs.machine_text)?;
        }
        for (name, text) in &inputs.machine_files {
            self.write(folder, name, text)?;
        }
        Ok(())
    }

    /// Gives the run directory its final name, writes the JSON file, and prints the paths.
    pub(super) fn finish(self, document: &impl Serialize) -> Result<(), Failure> {
        self.finish_with(|directory| to_json(&WithDirectory::of(document, directory)))
    }

    /// The same for several documents, each with its folder in the run directory.
    pub(super) fn finish_several(
        self,
        documents: &[(String, impl Serialize)],
    ) -> Result<(), Failure> {
        self.finish_with(|directory| {
            let each = documents.iter().map(|(folder, document)| {
                WithDirectory::of(document, directory.map(|path| path.join(folder)).as_deref())
            });
            to_json(&each.collect::<Vec<_>>())
        })
    }

    /// `json` is the text of the JSON file with the path of the run directory.
    fn finish_with(
        self,
        json: impl FnOnce(Option<&Path>) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        let json_only = self.json_only();
        let folder = self.directory.map(RunDir::finish).transpose()?;
        let mut places = Vec::new();
        let mut written = Ok(());
        if let Some(path) = &self.json {
            let text = json(folder.as_deref())?;
            if json_only {
                return print_stdout(&text);
            }
            written = write_file(path, text);
            if written.is_ok() {
                places.push(format!("JSON      {}", path.display()));
            }
        }
        if let Some(folder) = folder {
            let before = places.len();
            for (what, name) in [
                ("table", "table.txt"),
                ("numbers", "summary.json"),
                ("picture", "plot.png"),
                ("report", "report.html"),
            ] {
                let path = folder.join(name);
                if path.exists() {
                    places.push(format!("{what:<8}  {}", path.display()));
                }
            }
            if places.len() == before {
                places.push(format!("files     {}", folder.display()));
            }
        }
        if !places.is_empty() {
            print_stdout(&format!("\n{}\n", places.join("\n")))?;
        }
        written
    }
}

/// A document in the JSON file: with the run directory that has it as `summary.json`.
#[derive(Serialize)]
struct WithDirectory<'a, D> {
    #[serde(flatten)]
    document: &'a D,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
}

impl<'a, D> WithDirectory<'a, D> {
    fn of(document: &'a D, directory: Option<&Path>) -> WithDirectory<'a, D> {
        // Absolute: the reader may be elsewhere.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let directory = directory.map(|path| absolute(path).to_string_lossy().into_owned());
        WithDirectory { document, directory }
    }
}

/// Checks that a file of results, which `option` names, can be written.
pub(super) fn check_output_file(option: &str, path: &Path) -> Result<(), Failure> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    if parent.is_some_and(|p| !p.is_dir()) || path.is_dir() {
        return Err(Failure::Input(format!(
            "{option} {}: not a file that could be written; its directory must exist",
            path.display()
        )));
    }
    check_writable(path)
}

/// A document as JSON, ending in a newline.
pub(super) fn to_json(document: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(document)
        .map(|text| text + "\n")
        .map_err(|e| Failure::Failed(format!("cannot write the results as JSON: {e}")))
}
