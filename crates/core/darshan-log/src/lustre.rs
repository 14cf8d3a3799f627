//! Striping of files on Lustre.

use crate::counters::rank;
use crate::error::LogError;
use crate::fields::{ByteOrder, Fields};
use crate::region::Region;
use std::io::{Read, Seek};

/// A component of a file's layout. Before progressive layouts a file has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
    /// Storage targets.
    pub stripe_count: u64,
    /// Offset of its begin in the file.
    pub begin: u64,
    /// Offset of its end in the file; `None`: it has none.
    pub end: Option<u64>,
}

/// The striping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LustreFile {
    /// Id of the file's name.
    pub id: u64,
    /// The process that opened it; `None`: all.
    pub rank: Option<u32>,
    /// Components, by offset.
    pub components: Vec<Component>,
    /// The storage targets of all components.
    pub targets: Vec<i64>,
}

/// Most components, and most targets, of a file: Lustre has at most 2,000 targets in a component.
const MOST: u64 = 1 << 20;

/// Calls `visit` with the striping of each file.
pub(crate) fn read<R: Read + Seek>(
    region: &mut Region<'_, R>,
    version: u32,
    order: ByteOrder,
    processes: u32,
    visit: &mut dyn FnMut(&LustreFile),
) -> Result<(), LogError> {
    match version {
        1 => {
            // Id, rank, targets of the file system, its metadata servers, first target, stripe, stripe count.
            let mut head = [0; 56];
            while region.read_record(&mut head)? {
                let mut fields = Fields::new(&head, order);
                let (id, number) = (fields.u64(), fields.i64());
                fields.take(24);
                let (stripe, count) = (fields.i64(), fields.i64());
                let count = checked_count(region, count, "targets")?;
                let component = Component {
                    stripe_bytes: stripe.try_into().unwrap_or(0),
                    stripe_count: count,
                    begin: 0,
                    end: None,
                };
                let targets = targets(region, count, order)?;
                let rank = rank(region, number, processes)?;
                visit(&LustreFile { id, rank, components: vec![component], targets });
            }
            Ok(())
        }
        2 => {
            let mut head = [0; 32];
            while region.read_record(&mut head)? {
                let mut fields = Fields::new(&head, order);
                let (id, number) = (fields.u64(), fields.i64());
                let (components, count) = (fields.i64(), fields.i64());
                let components = checked_count(region, components, "components")?;
                let count = checked_count(region, count, "targets")?;
                let components = read_components(region, components, order)?;
                let mut targets = targets(region, count, order)?;
                let used: u64 = components.iter().map(|one| one.stripe_count).sum();
                targets.truncate(usize::try_from(used).unwrap_or(usize::MAX));
                let rank = rank(region, number, processes)?;
                visit(&LustreFile { id, rank, components, targets });
            }
            Ok(())
        }
        other => Err(region.error(format!("version {other} of LUSTRE records is not known"))),
    }
}

fn checked_count<R: Read + Seek>(
    region: &Region<'_, R>,
    count: i64,
    what: &str,
) -> Result<u64, LogError> {
    let valid = u64::try_from(count).ok().filter(|count| *count <= MOST);
    valid.ok_or_else(|| {
        region.error(format!("a file with {count} {what}; 0 to {MOST} are possible"))
    })
}

/// The components of a layout, without those that Darshan left unused.
fn read_components<R: Read + Seek>(
    region: &mut Region<'_, R>,
    count: u64,
    order: ByteOrder,
) -> Result<Vec<Component>, LogError> {
    // Stripe, stripe count, pattern, flags, begin, end, mirror; name of the pool.
    const BYTES: usize = 7 * 8 + 16;
    let mut components = Vec::new();
    let mut is_used = true;
    for _ in 0..count {
        let mut bytes = [0; BYTES];
        region.read_rest(&mut bytes)?;
        let mut fields = Fields::new(&bytes, order);
        let (stripe, stripes) = (fields.i64(), fields.i64());
        fields.take(16);
        let (begin, end) = (fields.i64(), fields.i64());
        is_used &= stripe != -1;
        if is_used {
            components.push(Component {
                stripe_bytes: stripe.try_into().unwrap_or(0),
                stripe_count: u64::try_from(stripes).unwrap_or(0).min(MOST),
                begin: begin.try_into().unwrap_or(0),
                end: end.try_into().ok(),
            });
        }
    }
    Ok(components)
}

fn targets<R: Read + Seek>(
    region: &mut Region<'_, R>,
    count: u64,
    order: ByteOrder,
) -> Result<Vec<i64>, LogError> {
    let mut bytes = vec![0; count as usize * 8];
    if !bytes.is_empty() {
        region.read_rest(&mut bytes)?;
    }
    let mut fields = Fields::new(&bytes, order);
    Ok((0..count).map(|_| fields.i64()).collect())
}
