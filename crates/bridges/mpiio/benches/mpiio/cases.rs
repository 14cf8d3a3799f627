//! The patterns of writing, and the programs that have them.

use crate::Outcome;
use crate::options::Options;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A pattern of writing.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The program and its first argument.
    pub program: &'static str,
    pub pattern: &'static str,
    /// Less time than plain MPI-IO that is aimed at: plain / logged.
    pub aim: Option<f64>,
    /// The writes are so large that they go past the log.
    pub direct: bool,
}

const fn case(
    name: &'static str,
    program: &'static str,
    pattern: &'static str,
    aim: Option<f64>,
) -> Case {
    Case { name, program, pattern, aim, direct: false }
}

/// The cases that compare with plain MPI-IO.
pub const CASES: [Case; 9] = [
    case("flash", "pnetcdf", "flash", Some(3.0)),
    case("btio", "patterns", "btio", Some(3.0)),
    case("ior", "patterns", "ior", Some(3.0)),
    case("ior-independent", "patterns", "ior-independent", None),
    case("e3sm", "patterns", "e3sm", Some(3.0)),
    case("hdf5", "hdf5", "sets", Some(3.0)),
    case("sparse", "patterns", "sparse", Some(0.95)),
    case("scattered", "patterns", "scattered", Some(0.95)),
    Case { direct: true, ..case("large", "patterns", "large", Some(0.95)) },
];

/// The cases that compare with the burst-buffer driver of PnetCDF.
pub const DRIVER_CASES: [Case; 4] = [
    case("pnetcdf-flash", "pnetcdf", "flash", None),
    case("pnetcdf-btio", "pnetcdf", "btio", None),
    case("pnetcdf-ior", "pnetcdf", "ior", None),
    case("pnetcdf-e3sm", "pnetcdf", "e3sm", None),
];

/// An MPI library of Debian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    OpenMpi,
    Mpich,
}

impl Mpi {
    /// Its name in the names of Debian's commands.
    pub fn name(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }

    /// Whether its compiler is there.
    pub fn is_installed(self) -> bool {
        let mut compiler = Command::new(format!("mpicc.{}", self.name()));
        compiler.arg("--version").output().is_ok_and(|output| output.status.success())
    }

    /// A command that runs a program on `ranks` processes.
    pub fn launch(self, ranks: usize, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "600"]);
        match self {
            Mpi::OpenMpi => command
                .args(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"])
                .args(["--mca", "btl", "self,vader"]),
            Mpi::Mpich => command.arg("mpiexec.mpich"),
        };
        command.arg("-n").arg(ranks.to_string()).arg(program);
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("FOREBAY_") || name_text == "PNETCDF_HINTS" {
                command.env_remove(name);
            }
        }
        command
    }
}

/// Options of the compiler for a program; `None` if its library is not installed.
fn libraries(program: &str, options: &Options, driver: bool) -> Option<Vec<String>> {
    let hdf5 = format!("hdf5/{}", options.mpi.name());
    match (program, &options.pnetcdf) {
        ("pnetcdf", Some(prefix)) if driver => {
            let prefix = prefix.display();
            Some(vec![
                format!("-I{prefix}/include"),
                format!("-L{prefix}/lib"),
                format!("-Wl,-rpath,{prefix}/lib"),
                "-lpnetcdf".to_owned(),
            ])
        }
        // Debian builds PnetCDF for Open MPI.
        ("pnetcdf", _) => (options.mpi == Mpi::OpenMpi
            && Path::new("/usr/include/pnetcdf.h").exists())
        .then(|| vec!["-lpnetcdf".to_owned()]),
        ("hdf5", _) => Path::new("/usr/include").join(&hdf5).join("hdf5.h").exists().then(|| {
            vec![
                format!("-I/usr/include/{hdf5}"),
                format!("-L/usr/lib/x86_64-linux-gnu/{hdf5}"),
                "-lhdf5".to_owned(),
            ]
        }),
        _ => Some(Vec::new()),
    }
}

/// Compiles the program of a case into a directory. `None` if a library that it needs is missing.
pub fn compile(
    case: &Case,
    options: &Options,
    driver: bool,
    to: &Path,
) -> Outcome<Option<PathBuf>> {
    let Some(libraries) = libraries(case.program, options, driver) else { return Ok(None) };
    let kind = if driver { "driver" } else { "plain" };
    let built = to.join(format!("{}.{kind}", case.program));
    if built.exists() {
        return Ok(Some(built));
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/mpiio/programs");
    let output = Command::new(format!("mpicc.{}", options.mpi.name()))
        .args(["-O2", "-o"])
        .arg(&built)
        .arg(sources.join(case.program).with_extension("c"))
        .args(libraries)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(Some(built))
}
