//! States of objects in the words of DataWarp.

use std::fmt;

use serde::{Deserialize, Serialize};

/// State of an object in DataWarp's five characters: goal `C`reate or `D`estroy, `A`ctual, `F`use
/// blown, in `T`ransition, `M`ixed; `-` for no. There is no fuse in this buffer, so the third is `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateWord {
    /// It is to be destroyed.
    pub destroy: bool,
    /// All of its parts exist.
    pub actual: bool,
    /// It is changing.
    pub transitioning: bool,
    /// Some of its parts exist and some do not.
    pub mixed: bool,
}

impl StateWord {
    /// The state of an object of `total` parts, of which `existing` exist.
    pub fn from_parts(destroy: bool, existing: usize, total: usize) -> StateWord {
        assert!(existing <= total, "more parts exist than there are");
        let actual = existing == total && !(destroy && total == 0);
        StateWord {
            destroy,
            actual,
            transitioning: destroy || !actual,
            mixed: existing > 0 && existing < total,
        }
    }
}

impl fmt::Display for StateWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |on: bool, c: char| if on { c } else { '-' };
        write!(
            f,
            "{}{}-{}{}",
            if self.destroy { 'D' } else { 'C' },
            mark(self.actual, 'A'),
            mark(self.transitioning, 'T'),
            mark(self.mixed, 'M')
        )
    }
}
