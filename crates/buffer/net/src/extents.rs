//! Holes and data of files.

use forebay_protocol::Errno;
use forebay_protocol::message::FoundExtent;
use rustix::fd::AsFd;
use rustix::fs::SeekFrom;

/// The next hole, or else the next data, at or after `offset` of an open file. Moves its position.
pub fn next_extent(file: impl AsFd, offset: u64, hole: bool) -> Result<FoundExtent, Errno> {
    let length = rustix::fs::fstat(&file)?.st_size.cast_unsigned();
    let to = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
    match rustix::fs::seek(&file, to) {
        Ok(at) => Ok(FoundExtent { at: Some(at), length }),
        Err(rustix::io::Errno::NXIO) => Ok(FoundExtent { at: None, length }),
        Err(error) => Err(error.into()),
    }
}
