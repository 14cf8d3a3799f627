//! Modules of Darshan.

use std::fmt;

/// A module, by its number since format 3.41.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Module(pub u8);

impl Module {
    /// Counters of POSIX calls.
    pub const POSIX: Module = Module(1);
    /// Counters of MPI-IO calls.
    pub const MPIIO: Module = Module(2);
    /// Counters of HDF5 datasets; since format 3.20.
    pub const H5D: Module = Module(4);
    /// Counters of PnetCDF variables; since format 3.41.
    pub const PNETCDF_VAR: Module = Module(6);
    /// Striping of files on Lustre.
    pub const LUSTRE: Module = Module(8);
    /// Counters of calls of C streams.
    pub const STDIO: Module = Module(9);
    /// Each POSIX transfer.
    pub const DXT_POSIX: Module = Module(10);
    /// Each MPI-IO transfer.
    pub const DXT_MPIIO: Module = Module(11);

    /// Darshan's name, if the module is known.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 18] = [
            "NULL",
            "POSIX",
            "MPI-IO",
            "H5F",
            "H5D",
            "PNETCDF_FILE",
            "PNETCDF_VAR",
            "BG/Q",
            "LUSTRE",
            "STDIO",
            "DXT_POSIX",
            "DXT_MPIIO",
            "MDHIM",
            "APXC",
            "APMPI",
            "HEATMAP",
            "DFS",
            "DAOS",
        ];
        NAMES.get(usize::from(self.0)).copied()
    }

    /// The module with a number in a log of format 3.`minor`: numbers were inserted for [`Module::H5D`] and
    /// [`Module::PNETCDF_VAR`].
    pub(crate) fn numbered(number: u8, minor: u32) -> Module {
        let after_h5d = number + u8::from(minor < 20 && number >= Module::H5D.0);
        Module(after_h5d + u8::from(minor < 41 && after_h5d >= Module::PNETCDF_VAR.0))
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "module {}", self.0),
        }
    }
}
