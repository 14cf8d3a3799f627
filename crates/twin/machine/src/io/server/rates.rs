//! The rates at which the parts of one server carry a stream of equal requests, from the numbers that
//! its parts take their times from.

use super::layout::Extent;
use crate::io::job::{IoJob, PS_PER_SECOND};
use crate::io::ssd::Ssd;
use forebay_machine_file::machine::BurstBuffer;
use forebay_units::Bytes;
use forebay_workload::ior::{Access, FileId};

/// Rates in bytes per second, and times in ps, of one server for requests of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerRates {
    /// Of serial dispatch.
    pub dispatch: f64,
    /// Of the data path in the direction of the access.
    pub data_path: f64,
    /// Of all channels of the flash.
    pub flash: f64,
    /// Time for which a write holds the lock of its object, without a hand-over.
    pub lock_hold: u64,
    /// Additional time for which it does after a write of another node of the same size.
    pub handover: u64,
    /// Time after which a request that does not wait is on flash or disk.
    pub on_disk: u64,
}

impl ServerRates {
    /// For requests of `bytes` that begin at `offset` of a file.
    pub fn of(job: &IoJob, offset: u64, bytes: u64, access: Access) -> ServerRates {
        let make = &job.burst_buffer;
        let per_second = |ps: f64| bytes as f64 * PS_PER_SECOND as f64 / ps.max(1.0);
        let extent = Extent { file: FileId(0), offset, bytes };
        let mut lock_hold = make.lock_hold.0 + make.copy_rate.time_for(Bytes(bytes)).0;
        if job.has_shared_file() && extent.partial_blocks(make).next().is_some() {
            lock_hold += Ssd::new(make).time_alone(make.block.0, false);
        }
        ServerRates {
            dispatch: per_second(make.dispatch.0 as f64),
            data_path: make.data_rate.0 as f64,
            flash: per_second(time_on_flash(make, &extent, access)),
            lock_hold,
            handover: make.handover_time(Bytes(bytes)).0,
            on_disk: Ssd::new(make)
                .submit_all(extent.commands(make), access == Access::Write, 0)
                .at,
        }
    }
}

/// Time for which an extent takes all channels of a server's flash, ps.
fn time_on_flash(make: &BurstBuffer, extent: &Extent, access: Access) -> f64 {
    let ssd = Ssd::new(make);
    let share = |(_, bytes)| ssd.share_of_node(bytes, access == Access::Write);
    extent.commands(make).map(share).sum()
}

/// Rate of the flash of a storage node for a stream of whole substripes, bytes per second: commands and the
/// gaps between them.
pub fn flash_rate(make: &BurstBuffer, access: Access) -> f64 {
    let bytes = make.substripe.0.min(make.stripe.0).max(1);
    let extent = Extent { file: FileId(0), offset: 0, bytes };
    bytes as f64 * PS_PER_SECOND as f64 / time_on_flash(make, &extent, access).max(1.0)
}
