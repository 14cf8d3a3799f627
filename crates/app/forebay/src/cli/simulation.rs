//! Commands that simulate one scenario, with one or several seeds: `sim darshan`, `sim traffic`,
//! `sim collective` and `sim interference`. What they have in common is here.

use super::forecast::Forecaster;
use super::options::study_failure;
use super::output::Files;
use super::replicates::replicate;
use super::sweep::{self, CommonOptions, Sample, Swept};
use crate::progress::Display;
use crate::report::Inputs;
use forebay_console::Failure;
use forebay_machine::observe::{Delays, Observed};
use forebay_machine::study::{Forecast, Progress, SimOptions, StudyError};
use forebay_machine_file::machine::Machine;
use serde::Serialize;

/// A command that simulates one scenario.
pub(super) trait Simulation: CommonOptions {
    /// Its name, which default names of run directories begin with.
    const NAME: &'static str;
    /// The checked input.
    type Input: Sync;
    /// The result document.
    type Run: Serialize + Send;

    /// Checks the input; `None` after `-h` among IOR's options, which prints IOR's help.
    fn input(&self) -> Result<Option<Self::Input>, Failure>;
    /// The machine of an input.
    fn machine(input: &Self::Input) -> &Machine;
    /// The simulator's options with the first seed, on all threads.
    fn options(&self, input: &Self::Input) -> SimOptions;
    /// The name of the scenario beside its progress.
    fn label(&self) -> String;
    /// Simulates with one seed.
    fn simulate(
        &self,
        input: &Self::Input,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<Self::Run, StudyError>;
    /// The document of several seeds: that of the first, with the means of all.
    fn join(&self, runs: Vec<Self::Run>) -> Self::Run;
    /// A result as a point of a sweep.
    fn sample_of(run: Self::Run) -> Sample;
    /// The command's own settings, for the run directory and the report.
    fn settings(&self, input: &Self::Input, run: &Self::Run) -> Vec<(&'static str, String)>;

    /// The files of a result; the table is also printed.
    fn files<'a>(&self, run: &'a Self::Run, inputs: &'a Inputs) -> Files<'a>;

    /// The observations of a run, if it can have some.
    fn observed(_run: &Self::Run) -> Option<(Option<&Delays>, &Observed)> {
        None
    }

    /// Says on standard error what will be simulated.
    fn announce(
        &self,
        _input: &Self::Input,
        _options: &SimOptions,
        _display: Display,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Adds to a result what the simulator does not know.
    fn complete(&self, _input: &Self::Input, run: Self::Run) -> Result<Self::Run, Failure> {
        Ok(run)
    }

    /// Shows the estimated work of packets, and its time by a short trial.
    fn announce_forecast(
        &self,
        (input, options): (&Self::Input, &SimOptions),
        display: Display,
        forecast: Forecast,
    ) {
        let (label, seeds) = (self.label(), self.sim().seeds);
        Forecaster::default().announce(display, &label, forecast, seeds, |progress| {
            // A trial ends as interrupted, and the run itself reports errors.
            let _ = self.simulate(input, options, progress);
        });
    }
}

/// Runs a command, or its sweeps.
pub(super) fn run<S: Simulation>(args: &S) -> Result<(), Failure> {
    let sim = args.sim();
    if !sim.sweep.is_empty() {
        return sweep::run(args, S::NAME);
    }
    let Some(input) = args.input()? else {
        return Ok(());
    };
    sim.observe.check(1, sim.seeds, args.output())?;
    let machine = S::machine(&input);
    let mut output = args.output().prepare(&format!("{}-{}", S::NAME, machine.name))?;
    let options = args.options(&input);
    args.announce(&input, &options, output.display)?;
    let runs =
        replicate(&options, sim.seeds, &args.label(), output.display, |options, progress| {
            args.simulate(&input, options, progress)
        })?;
    let run = args.complete(&input, args.join(runs))?;
    let inputs = sim.inputs(machine, args.settings(&input, &run));
    let files = args.files(&run, &inputs);
    output.print_and_record(files.table.trim_end())?;
    output.write_result_files("", &run, &files)?;
    if let Some((delays, observed)) = S::observed(&run) {
        sim.observe.write(&output, ("", ""), delays, observed)?;
    }
    output.finish(&run)
}

/// The input of a combination of a sweep.
fn input_of<S: Simulation>(args: &S) -> Result<S::Input, Failure> {
    args.input()?.ok_or_else(|| Failure::Input("--sweep takes one IOR test".to_string()))
}

impl<S: Simulation> Swept for S {
    fn check(&self) -> Result<(), Failure> {
        input_of(self).map(drop)
    }

    fn sample(
        &self,
        replicate: u32,
        threads: usize,
        progress: Progress<'_>,
    ) -> Result<Sample, Failure> {
        let input = input_of(self)?;
        let options = self.options(&input);
        let seed = options.seed.wrapping_add(replicate.into());
        let options = SimOptions { seed, threads, ..options };
        let run = self.simulate(&input, &options, progress).map_err(|e| study_failure(&e))?;
        Ok(S::sample_of(self.complete(&input, run)?))
    }
}
