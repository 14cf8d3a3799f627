//! A log.

use crate::counters::{self, Api, CounterRecord};
use crate::dxt::{self, Segment, TraceApi, TracedFile};
use crate::error::{LogError, Place};
use crate::file_use::Access;
use crate::header::Header;
use crate::job::Job;
use crate::lustre::{self, LustreFile};
use crate::module::Module;
use crate::names::Names;
use crate::region::Region;
use std::io::{Read, Seek, SeekFrom};

/// A Darshan log.
#[derive(Debug)]
pub struct Log<R> {
    source: R,
    header: Header,
    job: Job,
}

impl<R: Read + Seek> Log<R> {
    /// Opens a log: reads its header and its job record.
    ///
    /// # Errors
    /// The file is no log of format 3.00 to 3.41, or is damaged.
    pub fn open(mut source: R) -> Result<Log<R>, LogError> {
        let file_bytes = source.seek(SeekFrom::End(0)).map_err(|error| LogError {
            place: Place::Header,
            offset: 0,
            problem: format!("cannot be read: {error}"),
        })?;
        let header = Header::read(&mut source, file_bytes)?;
        let mut region = Region::new(&mut source, Place::Job, header.compression, header.job);
        let job = Job::read(&mut region, &header)?;
        Ok(Log { source, header, job })
    }

    /// The header: version, modules.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The job: processes, times, command line, mounts.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The names of all files.
    ///
    /// # Errors
    /// The region is damaged or too large.
    pub fn names(&mut self) -> Result<Names, LogError> {
        let extent = self.header.names;
        let compression = self.header.compression;
        let mut region = Region::new(&mut self.source, Place::Names, compression, extent);
        Names::read(&mut region, &self.header)
    }

    /// The region of a module and the version of its records.
    fn region(&mut self, module: Module) -> Option<(Region<'_, R>, u32)> {
        let found = *self.header.module(module)?;
        let compression = self.header.compression;
        let place = Place::Records(module);
        Some((Region::new(&mut self.source, place, compression, found.extent), found.version))
    }

    /// Calls `visit` with each record of counters, in the order of the log. Returns the number of records that
    /// are left out: POSIX records of the first version that also count calls of streams.
    ///
    /// # Errors
    /// The region is damaged or too large, or its version is not known. Records before the damage were visited.
    pub fn records(
        &mut self,
        api: Api,
        mut visit: impl FnMut(&CounterRecord),
    ) -> Result<u64, LogError> {
        let (order, processes) = (self.header.order, self.job.processes);
        let Some((mut region, version)) = self.region(api.module()) else { return Ok(0) };
        counters::read(&mut region, (api, version), order, processes, &mut visit)
    }

    /// Calls `visit` with the segments of each file and process: some at a time, in their order, writes before
    /// reads. A file without segments has one call without any.
    ///
    /// # Errors
    /// As [`Log::records`].
    pub fn traces(
        &mut self,
        api: TraceApi,
        mut visit: impl FnMut(&TracedFile, Access, &[Segment]),
    ) -> Result<(), LogError> {
        let (order, processes) = (self.header.order, self.job.processes);
        let Some((mut region, version)) = self.region(api.module()) else { return Ok(()) };
        dxt::read(&mut region, (api, version), order, processes, &mut visit)
    }

    /// Calls `visit` with the striping of each file on Lustre.
    ///
    /// # Errors
    /// As [`Log::records`].
    pub fn lustre(&mut self, mut visit: impl FnMut(&LustreFile)) -> Result<(), LogError> {
        let (order, processes) = (self.header.order, self.job.processes);
        let Some((mut region, version)) = self.region(Module::LUSTRE) else { return Ok(()) };
        lustre::read(&mut region, version, order, processes, &mut visit)
    }
}
