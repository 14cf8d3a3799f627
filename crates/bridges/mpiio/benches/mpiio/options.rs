//! The command line.

use crate::Outcome;
use crate::cases::Mpi;
use crate::slow_pfs::Speed;
use std::path::{Path, PathBuf};
use std::time::Duration;

const USAGE: &str = "\
options: --mpi openmpi|mpich     MPI library (openmpi)
         --directory DIR         for the files and logs (the directory of build files)
         --logs DIR              for the logs only
         --only NAME             cases whose name contains this
         --files local|slow      file system of the files (both)
         --pairs N               runs of each kind (5)
         --latency-us N          time of a request of the slow file system (1000)
         --rate-mb-s N           rate of a request's data there (500)
         --pnetcdf PREFIX        an installation of PnetCDF with --enable-burst-buffering
         --predict FOREBAY       compare the gain with that of `FOREBAY sim ior --log`, on a machine file
                                 calibrated to this computer, instead of all cases
         --json PATH             results (mpiio.json in the directory of build files)";

/// Options of a benchmark.
#[derive(Debug)]
pub struct Options {
    pub mpi: Mpi,
    pub directory: PathBuf,
    pub logs: Option<PathBuf>,
    /// Only cases whose names contain this.
    pub only: String,
    pub local: bool,
    pub slow: bool,
    pub pairs: usize,
    pub speed: Speed,
    /// Installation of PnetCDF with the burst-buffer driver.
    pub pnetcdf: Option<PathBuf>,
    /// The program that predicts the gain.
    pub forebay: Option<PathBuf>,
    pub json: PathBuf,
}

/// The absolute path of a directory: programs with other working directories get it.
fn existing_directory(path: String) -> Outcome<PathBuf> {
    let found = Path::new(&path).canonicalize();
    let found = found.and_then(|found| match found.is_dir() {
        true => Ok(found),
        false => Err(std::io::ErrorKind::NotADirectory.into()),
    });
    found.map_err(|error| {
        // cargo runs benchmarks in the directory of their package.
        let from = std::env::current_dir().unwrap_or_default();
        format!("{path}: {error} (relative paths start at {})", from.display()).into()
    })
}

/// Parses a command line.
pub fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Options> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let speed = Speed { latency: Duration::from_millis(1), bytes_per_second: 500e6 };
    let mut options = Options {
        mpi: Mpi::OpenMpi,
        json: directory.join("mpiio.json"),
        directory,
        logs: None,
        only: String::new(),
        local: true,
        slow: true,
        pairs: 5,
        speed,
        pnetcdf: None,
        forebay: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--mpi" => {
                options.mpi = match value()?.as_str() {
                    "openmpi" => Mpi::OpenMpi,
                    "mpich" => Mpi::Mpich,
                    _ => return Err(USAGE.into()),
                }
            }
            "--directory" => options.directory = existing_directory(value()?)?,
            "--logs" => options.logs = Some(existing_directory(value()?)?),
            "--only" => options.only = value()?,
            "--files" => match value()?.as_str() {
                "local" => options.slow = false,
                "slow" => options.local = false,
                _ => return Err(USAGE.into()),
            },
            "--pairs" => options.pairs = value()?.parse::<usize>()?.max(1),
            "--latency-us" => {
                options.speed.latency = Duration::from_micros(value()?.parse()?);
            }
            "--rate-mb-s" => options.speed.bytes_per_second = value()?.parse::<f64>()? * 1e6,
            "--pnetcdf" => options.pnetcdf = Some(existing_directory(value()?)?),
            "--predict" => options.forebay = Some(value()?.into()),
            "--json" => options.json = value()?.into(),
            "--bench" => {} // added by cargo
            _ => return Err(USAGE.into()),
        }
    }
    let rate = options.speed.bytes_per_second;
    if !rate.is_finite() || rate <= 0.0 {
        return Err("--rate-mb-s must be positive".into());
    }
    Ok(options)
}
