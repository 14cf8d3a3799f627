//! The state of one process.

/// The activity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Between two steps, or at the end.
    Idle,
    /// Waiting at a barrier between steps.
    Barrier,
    /// Waiting for the offsets of the others before a collective transfer.
    Collective,
    /// Waiting for the counts of the others before a collective transfer.
    Counts,
    /// In a collective transfer: exchanging data; an aggregator also waits for a window's.
    Exchange,
    /// An aggregator accesses the file for a window.
    Window,
    /// Waiting for the others after a collective transfer.
    Exchanged,
    /// Past the deadline of a stonewall with wear-out: waiting for the furthest task's count.
    WearOut,
    /// A transfer is in progress.
    Transfer,
    /// The fsync after a write is in progress.
    SyncWrite,
    /// A call that is no transfer (fsync, open, close, removal …) is in progress.
    Other,
}

/// In place of a window's number: none is left.
pub(super) const NO_WINDOW: u32 = u32::MAX;

/// One process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub rank: u32,
    /// Current step.
    pub step: u32,
    pub activity: Activity,
    /// Transfers begun in this phase.
    pub transfer: u64,
    /// Transfers to make in this phase.
    pub last: u64,
    /// Transfers that the write phase of this repetition made; `u64::MAX`: there was none.
    pub written: u64,
    /// Whether the wear-out count is known.
    pub worn_out: bool,
    /// Start and end of the part of the current call that has not been requested yet: bytes of the
    /// file, or requests.
    pub offset: u64,
    pub end: u64,
    /// Requests of the call that were sent.
    pub sent: u32,
    /// Requests of the call in flight.
    pub in_flight: u32,
    /// Whether the process waits until its node may have another request in flight.
    pub waits_for_node: bool,
    /// Time since which the process waits for its turn to write to the shared file, ps.
    pub awaits_turn_since: Option<u64>,
    /// Start of the call, ps.
    pub call_began: u64,
    /// Time until which the bytes of the call are counted as moved: its start, that of its turn to write, or the end
    /// of its last request, ps.
    pub moved_until: u64,
    /// Start of the transfers of the phase, ps.
    pub transfers_began: u64,
    /// Start of those of the first phase, ps.
    pub first_transfers_began: Option<u64>,
    /// Time spent in transfers of this phase, ps.
    pub in_transfers: u64,
    /// Time spent in other calls (open, fsync, close) of this phase, ps.
    pub in_other_calls: u64,
    /// In a collective transfer: bytes missing for this process (reading) or its window (writing).
    pub missing: u64,
    /// In a collective transfer, of an aggregator: the current window, or [`NO_WINDOW`].
    pub window: u32,
}

impl Rank {
    pub fn new(rank: u32) -> Self {
        Rank {
            rank,
            step: 0,
            activity: Activity::Idle,
            transfer: 0,
            last: 0,
            written: u64::MAX,
            worn_out: false,
            offset: 0,
            end: 0,
            sent: 0,
            in_flight: 0,
            waits_for_node: false,
            awaits_turn_since: None,
            call_began: 0,
            moved_until: 0,
            transfers_began: 0,
            first_transfers_began: None,
            in_transfers: 0,
            in_other_calls: 0,
            missing: 0,
            window: NO_WINDOW,
        }
    }

    /// Whether all requests of the call have been sent and are done.
    pub fn call_is_done(&self) -> bool {
        self.in_flight == 0 && self.offset >= self.end
    }

    /// Counts bytes of an exchange that have arrived.
    pub fn receive_bytes(&mut self, bytes: u64) {
        assert!(self.missing >= bytes, "{bytes} bytes for {self:?}");
        self.missing -= bytes;
    }
}
