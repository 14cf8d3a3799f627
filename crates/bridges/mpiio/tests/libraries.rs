//! Libraries over MPI-IO: their files are those of plain MPI-IO.

use crate::support;
use std::path::Path;
use support::{Mpi, assert_equal_files, intercept, run, statistics};

/// Processes.
const RANKS: usize = 2;
/// Directories of Debian's headers and libraries.
const HDF5_OPEN_MPI: [&str; 3] =
    ["-I/usr/include/hdf5/openmpi", "-L/usr/lib/x86_64-linux-gnu/hdf5/openmpi", "-lhdf5"];
const HDF5_MPICH: [&str; 3] =
    ["-I/usr/include/hdf5/mpich", "-L/usr/lib/x86_64-linux-gnu/hdf5/mpich", "-lhdf5"];
const NETCDF: [&str; 2] = ["-I/usr/lib/x86_64-linux-gnu/netcdf/mpi/include", "-lnetcdf_mpi"];

/// Runs a program with and without the library; the argument is the file that it writes.
fn compare(mpi: Mpi, program: &Path, first: Option<&Path>, scratch: &Path) {
    for name in ["plain", "logged"] {
        std::fs::create_dir(scratch.join(name)).unwrap();
        let mut command = mpi.launch(RANKS, program);
        command.args(first).arg(scratch.join(name).join("data"));
        if name == "logged" {
            intercept(&mut command, "*/logged/data", scratch);
        }
        run(&mut command);
    }
    assert_equal_files(&scratch.join("plain"), &scratch.join("logged"));
    let statistics = statistics(scratch);
    assert!(statistics.count("logged/data", "logged_requests") >= 2 * RANKS as u64);
    assert!(statistics.count("logged/data", "merged_writes") > 0);
    assert_eq!(statistics.count("logged/data", "past_log_requests"), 0);
}

/// Compiles a program and compares, if the library that it needs is installed.
fn check(mpi: Mpi, source: &str, options: &[&str], header: &str) {
    if !Mpi::installed().contains(&mpi) || !Path::new(header).exists() {
        eprintln!("{header} is not installed; {source} with {mpi:?} is skipped");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = mpi.compile(source, options, scratch.path());
    compare(mpi, &program, None, scratch.path());
}

#[test]
fn parallel_hdf5_writes_the_same_file() {
    check(Mpi::OpenMpi, "hdf5.c", &HDF5_OPEN_MPI, "/usr/include/hdf5/openmpi/hdf5.h");
    check(Mpi::Mpich, "hdf5.c", &HDF5_MPICH, "/usr/include/hdf5/mpich/hdf5.h");
}

#[test]
fn pnetcdf_with_fills_overlaps_and_independent_puts_writes_the_same_file() {
    check(Mpi::OpenMpi, "pnetcdf.c", &["-lpnetcdf"], "/usr/include/pnetcdf.h");
}

#[test]
fn parallel_netcdf_4_writes_the_same_file() {
    let header = "/usr/lib/x86_64-linux-gnu/netcdf/mpi/include/netcdf_par.h";
    check(Mpi::OpenMpi, "netcdf.c", &NETCDF, header);
}

#[test]
fn mpi4py_writes_the_same_file() {
    let python = Path::new("/usr/bin/python3");
    let has = std::process::Command::new(python).args(["-c", "import mpi4py"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("mpi4py is not installed; its test is skipped");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/python.py");
    compare(Mpi::OpenMpi, python, Some(&program), scratch.path());
}
