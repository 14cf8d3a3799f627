//! Reader of Darshan logs.
//!
//! Darshan (<https://www.mcs.anl.gov/research/projects/darshan>) records the I/O of a program: counters of
//! each file and process, with DXT also each transfer. [`Log`] reads the logs of its versions 3.x (formats
//! 3.00 to 3.41) of both byte orders, compressed with zlib, bzip2 or not at all.
//!
//! - [`Log::records`] gives the counters of POSIX, MPI-IO and STDIO, whatever the version of the record;
//!   [`FileUse`] is the same in one form for all three.
//! - [`Log::traces`] gives the segments of DXT, [`Log::lustre`] the striping of files.
//! - [`Performance`] has the rates as Darshan defines them.
//!
//! Records are handed over one by one and not kept. A log may be damaged or made to harm: regions, names and
//! records are limited, each error names its region and place, and nothing panics.
#![warn(missing_docs)]

mod counter_names;
mod counters;
mod dxt;
mod error;
mod fields;
mod file_use;
mod header;
mod job;
mod log;
mod lustre;
mod module;
mod names;
mod performance;
mod region;

pub use counters::{Api, CounterRecord};
pub use dxt::{Segment, TraceApi, TracedFile};
pub use error::{LogError, Place};
pub use file_use::{Access, FileUse, SIZE_BINS, Transfers};
pub use header::{Compression, Header, ModuleRegion, Version};
pub use job::{Job, Mount};
pub use log::Log;
pub use lustre::{Component, LustreFile};
pub use module::Module;
pub use names::Names;
pub use performance::{Performance, SharingCounts};
