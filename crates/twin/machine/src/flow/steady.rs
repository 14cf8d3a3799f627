//! Steady rates of jobs while the same phases run.

/// Difference of the rates of three windows up to which they are steady. Convoys of processes grow slowly, so that
/// rates that fall by a percent from window to window are not.
const STEADY: f64 = 0.001;
/// Windows after which the rate of the last one is taken for steady.
const MOST_WINDOWS: u32 = 6;

/// The rate of one job over windows of a number of its runs. When those of three windows in succession agree,
/// or after some windows, it has its steady rate, which remains until the windows begin anew. A job without
/// resources in common with others settles as it does alone, however many runs these have meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SteadyRateSearch {
    /// Windows that have ended.
    windows: u32,
    /// Time, ps, ended runs and moved bytes at the begin of the present window.
    begin: (u64, u64, f64),
    /// Length of the last window, ps.
    length: u64,
    /// Rates of the last two windows, the latest first, bytes per picosecond.
    last: [Option<f64>; 2],
    steady: Option<f64>,
}

impl SteadyRateSearch {
    /// The first window begins `now`, ps, when a phase has had so many runs and moved so many bytes.
    pub fn from(now: u64, runs: u64, moved: f64) -> SteadyRateSearch {
        SteadyRateSearch { begin: (now, runs, moved), ..SteadyRateSearch::default() }
    }

    /// The steady rate, bytes per picosecond, if there is one. A window has `most` runs, or those up to now if it is
    /// to be the last one.
    pub fn rate(
        &mut self,
        now: u64,
        runs: u64,
        (most, is_last): (u64, bool),
        moved: impl Fn() -> f64,
    ) -> Option<f64> {
        let (begin, runs_before, moved_before) = self.begin;
        let is_short = runs - runs_before < most;
        if self.steady.is_some() || now == begin || is_short && !is_last {
            return self.steady;
        }
        let moved = moved();
        let rate = (moved - moved_before) / (now - begin) as f64;
        self.windows += 1;
        let is_same =
            |last: Option<f64>| last.is_some_and(|last| (rate - last).abs() <= STEADY * rate);
        let agree = self.last.into_iter().all(is_same);
        self.steady = (agree || is_last || self.windows >= MOST_WINDOWS).then_some(rate);
        (self.begin, self.length) = ((now, runs, moved), now - begin);
        self.last = [Some(rate), self.last[0]];
        self.steady
    }

    /// Length of the last window, ps.
    pub fn length(&self) -> u64 {
        self.length
    }
}
