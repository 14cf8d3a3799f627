//! One process: where it stands, and what it waits for.

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Between two steps, or at the end.
    Nothing,
    /// Waiting at a barrier between steps.
    Barrier,
    /// Waiting for the others before a collective transfer.
    Collective,
    /// In a collective transfer: giving or taking data; an aggregator also waits for a window's.
    Sharing,
    /// An aggregator accesses the file for a window.
    Window,
    /// Waiting for the others after a collective transfer.
    Shared,
    /// Past the deadline of a stonewall with wear-out: waiting for the furthest task's count.
    WearOut,
    /// A transfer is under way.
    Transfer,
    /// The fsync after a write is under way.
    SyncWrite,
    /// An fsync, open, close, removal … is under way.
    Other,
}

/// One process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub rank: u32,
    /// Step it is at.
    pub step: u32,
    pub doing: Doing,
    /// Transfers begun in this phase.
    pub transfer: u64,
    /// Transfers to make in this phase.
    pub last: u64,
    /// Transfers that the write phase of this repetition made; `u64::MAX`: there was none.
    pub written: u64,
    /// Whether the wear-out count is known.
    pub worn_out: bool,
    /// What is left to be asked for of the call under way: bytes of the file, or requests.
    pub offset: u64,
    pub end: u64,
    /// Requests of the call sent, and under way.
    pub sent: u32,
    pub open: u32,
    /// When the call began; when the transfers of the phase did, ps.
    pub call_began: u64,
    pub transfers_began: u64,
    /// Time spent in transfers of this phase, ps.
    pub in_transfers: u64,
    /// In a collective transfer: bytes that are still to come to this process (reading), or to its
    /// window (writing).
    pub due: u64,
    /// In a collective transfer, of an aggregator: the window it is at; `u32::MAX`: none is left.
    pub window: u32,
}

impl Rank {
    pub fn new(rank: u32) -> Self {
        Rank {
            rank,
            step: 0,
            doing: Doing::Nothing,
            transfer: 0,
            last: 0,
            written: u64::MAX,
            worn_out: false,
            offset: 0,
            end: 0,
            sent: 0,
            open: 0,
            call_began: 0,
            transfers_began: 0,
            in_transfers: 0,
            due: 0,
            window: u32::MAX,
        }
    }

    pub fn is_through(&self) -> bool {
        self.open == 0 && self.offset >= self.end
    }
}
