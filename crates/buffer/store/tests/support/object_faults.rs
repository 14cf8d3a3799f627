//! Failures of the device under simulated objects.

use super::seeds::Random;
use forebay_protocol::Errno;

/// Rates of failures, per mille.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// Writing the data of an object back, for a sync.
    pub write_back: u64,
    /// Reading or writing an object.
    pub transfer: u64,
}

/// Decides which operations fail.
pub struct ObjectFaults {
    rates: FaultRates,
    random: Random,
}

impl Default for ObjectFaults {
    fn default() -> ObjectFaults {
        ObjectFaults::new(0, FaultRates::default())
    }
}

impl ObjectFaults {
    pub fn new(seed: u64, rates: FaultRates) -> ObjectFaults {
        ObjectFaults { rates, random: Random::of(seed ^ 0x00b1_ec75) }
    }

    pub fn fails_write_back(&mut self) -> bool {
        let rate = self.rates.write_back;
        rate > 0 && self.random.below(1000) < rate
    }

    pub fn check_transfer(&mut self) -> Result<(), Errno> {
        let rate = self.rates.transfer;
        if rate > 0 && self.random.below(1000) < rate { Err(Errno::EIO) } else { Ok(()) }
    }
}
