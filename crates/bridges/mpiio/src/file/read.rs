//! Reads: the file below the logged writes.

use super::sources::Sources;
use super::{IN_FILE, LoggedFile};
use crate::mpi::{MpiError, library};
use forebay_mpiio_log::{MAX_PIECES, Segment, read_pieces};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Most bytes of the file that are read at once for several segments.
const WINDOW: u64 = 4 << 20;
/// Most bytes between segments that are read together.
const GAP: u64 = 64 << 10;

impl LoggedFile {
    /// Bytes of the view's stream, of `length` from a position on, that lie below the end of file.
    pub(super) fn readable_bytes(&self, position: u64, length: u64) -> Result<u64, MpiError> {
        let view = &self.view.view;
        if !view.contains(position, length) {
            return Err(MpiError(library().error_argument));
        }
        let size = self.size()?;
        if view.is_ordered() {
            return Ok(view.stream_position(size).saturating_sub(position).min(length));
        }
        let mut bytes = 0;
        for segment in view.segments(position, length) {
            if segment.end() > size {
                return Ok(bytes + size.saturating_sub(segment.offset));
            }
            bytes += segment.length;
        }
        Ok(bytes)
    }

    /// Fills `buffer` from a position of the view's stream on.
    pub(super) fn read(&mut self, position: u64, buffer: &mut [u8]) -> Result<(), MpiError> {
        let view = Arc::clone(&self.view.view);
        let mut window: Vec<Segment> = Vec::new();
        for segment in view.segments(position, buffer.len() as u64) {
            let near = window.first().zip(window.last()).is_none_or(|(first, last)| {
                window.len() < MAX_PIECES
                    && segment.offset >= last.end()
                    && segment.offset - last.end() <= GAP
                    && segment.end() - first.offset <= WINDOW
            });
            if !near {
                self.read_window(&window, position, buffer)?;
                window.clear();
            }
            window.push(segment);
        }
        self.read_window(&window, position, buffer)
    }

    /// Reads segments that are in the order of the file.
    fn read_window(
        &mut self,
        segments: &[Segment],
        position: u64,
        buffer: &mut [u8],
    ) -> Result<(), MpiError> {
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Ok(()) };
        let range = first.offset..last.end();
        let place = |segment: &Segment| {
            let start = (segment.stream - position) as usize;
            start..start + segment.length as usize
        };
        if let [only] = segments {
            return self.read_range(range.start, &mut buffer[place(only)]);
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read_range(range.start, &mut bytes)?;
        for segment in segments {
            let start = (segment.offset - range.start) as usize;
            let part = &bytes[start..start + segment.length as usize];
            buffer[place(segment)].copy_from_slice(part);
        }
        Ok(())
    }

    /// Reads a range of the file with the logged writes, some pieces after others.
    fn read_range(&mut self, start: u64, buffer: &mut [u8]) -> Result<(), MpiError> {
        let end = start + buffer.len() as u64;
        let sources =
            Sources { rank: self.comm.rank as u32, writer: &self.writer, logs: &self.logs };
        let mut overlay = self.index.pieces(start..end);
        let mut pieces = Vec::new();
        let (mut at, mut rest, mut logged) = (start, buffer, 0);
        loop {
            let mut last = None;
            pieces.clear();
            for piece in overlay.by_ref().take(MAX_PIECES) {
                last = Some(piece.end());
                pieces.extend(Some(piece).filter(|piece| piece.place.log != IN_FILE));
            }
            // Behind the last piece there is the file.
            let to = last.unwrap_or(end);
            let (part, others) = rest.split_at_mut((to - at) as usize);
            let bytes: u64 = pieces.iter().map(|piece| piece.length).sum();
            if bytes < part.len() as u64 {
                read_file(&self.target, at, part).map_err(|error| self.failed("read", &error))?;
            }
            read_pieces(&sources, &pieces, at, part)
                .map_err(|error| self.failed("read the log of", &error))?;
            logged += bytes;
            (at, rest) = (to, others);
            if last.is_none() {
                break;
            }
        }
        self.counters.log_read_bytes += logged;
        Ok(())
    }
}

/// Fills `buffer` from the file; bytes behind its end are zero.
fn read_file(file: &File, start: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], start + done as u64) {
            Ok(0) => {
                buffer[done..].fill(0);
                return Ok(());
            }
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
