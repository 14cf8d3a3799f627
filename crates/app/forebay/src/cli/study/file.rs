//! The file of a study.

use super::super::machine::load_with;
use super::super::options::{check_nodes, groups, machine_text, setting, study_failure};
use super::super::output::VERSION;
use super::case::Case;
use forebay_console::Failure;
use forebay_machine::observe::ObserveOptions;
use forebay_machine::study::{
    Fidelity, FileSystem, IoWork, JobWork, MOST_JOBS, ServerQueues, SimOptions, StorageChoice,
    StudyJob, check_jobs_fit,
};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::Routing;
use forebay_units::{Bytes, Rate, Time};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::{LEAST_RATE_LIMIT, TrafficPattern, TrafficSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most measures of a study, and most seeds.
const MOST_MEASURES: usize = 256;
const MOST_SEEDS: u32 = 1_000;

/// Longest warm-up, which is simulated packet by packet.
const MOST_WARM_UP: Time = Time(1_000_000_000_000);

/// The name of the case without a measure.
pub(super) const NONE: &str = "none";

/// The file of a study: jobs on one machine, and measures against their interference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StudyFile {
    /// Where it was read.
    #[serde(skip)]
    path: PathBuf,
    pub title: String,
    pub machine: String,
    /// The first seed.
    #[serde(default = "one")]
    pub seed: u64,
    /// Number of seeds.
    #[serde(default = "one_seed")]
    pub seeds: u32,
    pub job: Vec<JobEntry>,
    /// `packet`, `flow` or `auto`.
    pub fidelity: Option<String>,
    /// The file system of all I/O jobs: `burst-buffer` or `pfs`; and the targets of a file of `pfs`.
    file_system: Option<String>,
    stripe_count: Option<u32>,
    /// Time for which the jobs with traffic run before those with I/O.
    warm_up: Option<String>,
    #[serde(default)]
    pub measure: Vec<Measure>,
    /// Variations, of which each combination is a measure.
    #[serde(default)]
    pub vary: Vec<Variation>,
}

/// A variation of the machine or of the jobs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variation {
    pub name: String,
    pub value: Vec<Measure>,
}

fn one() -> u64 {
    1
}

fn one_seed() -> u32 {
    1
}

/// A job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobEntry {
    pub name: String,
    pub nodes: u32,
    /// IOR's options, of an I/O job.
    pub ior: Option<String>,
    /// Processes on each node, of an I/O job.
    pub ppn: Option<u32>,
    pub traffic: Option<TrafficEntry>,
    placement: Option<String>,
    groups: Option<String>,
    start: Option<String>,
    burst_buffers: Option<u32>,
    storage_groups: Option<String>,
    separate_storage: Option<bool>,
    rate_limit: Option<String>,
    storage_per_group: Option<u32>,
}

/// The messages of a job with traffic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficEntry {
    pub pattern: String,
    pub message: String,
    pub load: f64,
    pub messages: u64,
}

/// Settings of a job, by its entry or instead by a measure.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Choices {
    placement: Option<String>,
    groups: Option<String>,
    start: Option<String>,
    burst_buffers: Option<u32>,
    storage_groups: Option<String>,
    separate_storage: Option<bool>,
    rate_limit: Option<String>,
    storage_per_group: Option<u32>,
}

/// The differences of a case from the machine and the jobs' entries.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measure {
    pub name: String,
    routing: Option<String>,
    server_queues: Option<String>,
    #[serde(default)]
    set: Vec<String>,
    /// By name of the job.
    #[serde(default)]
    job: BTreeMap<String, Choices>,
}

impl Choices {
    /// These choices, or those of `other` where there is none.
    fn or(&self, other: &Choices) -> Choices {
        let text = |own: &Option<String>, other: &Option<String>| own.clone().or(other.clone());
        Choices {
            placement: text(&self.placement, &other.placement),
            groups: text(&self.groups, &other.groups),
            start: text(&self.start, &other.start),
            burst_buffers: self.burst_buffers.or(other.burst_buffers),
            storage_groups: text(&self.storage_groups, &other.storage_groups),
            separate_storage: self.separate_storage.or(other.separate_storage),
            rate_limit: text(&self.rate_limit, &other.rate_limit),
            storage_per_group: self.storage_per_group.or(other.storage_per_group),
        }
    }

    fn storage(&self) -> Result<StorageChoice, String> {
        for (count, name) in
            [(self.burst_buffers, "burst_buffers"), (self.storage_per_group, "storage_per_group")]
        {
            if count == Some(0) {
                return Err(format!("`{name}` is at least 1"));
            }
        }
        Ok(StorageChoice {
            nodes: self.burst_buffers,
            groups: self.storage_groups.as_deref().map(groups).transpose()?,
            per_group: self.storage_per_group,
            separate: self.separate_storage.unwrap_or(false),
        })
    }

    /// The entries that only an I/O job can have.
    fn of_io_only(&self) -> Option<&'static str> {
        self.start.is_some().then_some("start").or(self.of_burst_buffer_only())
    }

    /// The entries that only a job on burst buffers can have.
    fn of_burst_buffer_only(&self) -> Option<&'static str> {
        let given = [
            (self.burst_buffers.is_some(), "burst_buffers"),
            (self.storage_groups.is_some(), "storage_groups"),
            (self.separate_storage.is_some(), "separate_storage"),
            (self.storage_per_group.is_some(), "storage_per_group"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

impl Measure {
    /// Both measures; where they differ, this one.
    fn and(&self, other: &Measure) -> Measure {
        let mut both = other.clone();
        both.name = match other.name.is_empty() {
            true => self.name.clone(),
            false => format!("{}, {}", other.name, self.name),
        };
        both.set.extend(self.set.iter().cloned());
        both.routing = self.routing.clone().or(both.routing);
        both.server_queues = self.server_queues.clone().or(both.server_queues);
        for (name, choices) in &self.job {
            let of_job = both.job.entry(name.clone()).or_default();
            *of_job = choices.or(of_job);
        }
        both
    }
}

/// Each combination of a value of each variation; the last one varies fastest. `None`: more than the
/// measures that a study may have.
fn combinations(variations: &[Variation]) -> Option<Vec<Measure>> {
    if variations.is_empty() {
        return Some(Vec::new());
    }
    let mut all = vec![Measure::default()];
    for variation in variations {
        if variation.value.len().checked_mul(all.len())? > MOST_MEASURES {
            return None;
        }
        let named = |value: &Measure| Measure {
            name: format!("{} {}", variation.name, value.name),
            ..value.clone()
        };
        let values: Vec<Measure> = variation.value.iter().map(named).collect();
        let with_each =
            |before: &Measure| values.iter().map(|value| value.and(before)).collect::<Vec<_>>();
        all = all.iter().flat_map(with_each).collect();
    }
    Some(all)
}

fn fidelity(name: &str) -> Result<Fidelity, String> {
    let all = [Fidelity::Packet, Fidelity::Flow, Fidelity::Auto];
    let found = all.into_iter().find(|known| known.name() == name);
    found.ok_or_else(|| format!("no fidelity `{name}`; there are packet, flow, auto"))
}

impl StudyFile {
    pub fn read(path: &Path) -> Result<StudyFile, Failure> {
        let at = |reason: String| Failure::Input(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
        let mut study: StudyFile =
            toml::from_str(&text).map_err(|error| at(error.to_string().trim_end().to_string()))?;
        if let Some(variation) = study.vary.iter().find(|one| one.value.is_empty()) {
            return Err(at(format!("the variation `{}` has no values", variation.name)));
        }
        let varied = combinations(&study.vary);
        let too_many = || at(format!("more than {MOST_MEASURES} combinations of variations"));
        study.measure.extend(varied.ok_or_else(too_many)?);
        study.check().map_err(at)?;
        study.path = path.to_owned();
        Ok(study)
    }

    fn check(&self) -> Result<(), String> {
        if self.job.is_empty() || self.job.len() > MOST_JOBS {
            return Err(format!("{} jobs: a study has 1 to {MOST_JOBS}", self.job.len()));
        }
        if self.measure.len() > MOST_MEASURES {
            return Err(format!("more than {MOST_MEASURES} measures"));
        }
        if self.seeds == 0 || self.seeds > MOST_SEEDS {
            return Err(format!("{} seeds: a study has 1 to {MOST_SEEDS}", self.seeds));
        }
        let jobs = self.job.iter().map(|job| &job.name);
        let mut names = jobs.chain(self.measure.iter().map(|one| &one.name));
        if let Some(name) = names.find(|name| name.chars().any(char::is_control)) {
            return Err(format!("the name {name:?} has control characters: write it without them"));
        }
        let measures = self.measure.iter().map(|one| one.name.as_str()).chain([NONE]);
        if let Some(name) = first_twice(measures.collect()) {
            return Err(format!("two measures are named `{name}`: give each its name"));
        }
        if let Some(name) = first_twice(self.job.iter().map(|job| job.name.as_str()).collect()) {
            return Err(format!("two jobs are named `{name}`: give each its name"));
        }
        self.warm_up()?;
        for measure in &self.measure {
            let known = |name: &&String| self.job.iter().any(|job| job.name == **name);
            if let Some(name) = measure.job.keys().find(|name| !known(name)) {
                let names: Vec<&str> = self.job.iter().map(|job| job.name.as_str()).collect();
                return Err(format!(
                    "measure `{}`: no job `{name}`; there are {}",
                    measure.name,
                    names.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// The warm-up of traffic, if there is one.
    pub fn warm_up(&self) -> Result<Option<Time>, String> {
        let Some(text) = &self.warm_up else { return Ok(None) };
        let time = text.parse::<Time>().map_err(|error| format!("warm_up: {error}"))?;
        if time == Time::ZERO || time > MOST_WARM_UP {
            return Err(format!("warm_up: {text}; it is more than 0 and at most {MOST_WARM_UP}"));
        }
        if self.job.iter().all(|job| job.traffic.is_none()) {
            return Err("`warm_up` is for studies with traffic: no job has any".into());
        }
        Ok(Some(time))
    }

    /// The case without a measure, then those with one; each with all seeds.
    pub fn cases(&self) -> Result<Vec<Case>, Failure> {
        let none = Measure { name: NONE.into(), ..Measure::default() };
        let mut cases = Vec::new();
        for measure in std::iter::once(&none).chain(&self.measure) {
            for nth in 0..self.seeds {
                cases.push(self.case(measure, self.seed.wrapping_add(nth.into()))?);
            }
        }
        Ok(cases)
    }

    fn case(&self, measure: &Measure, seed: u64) -> Result<Case, Failure> {
        let file = self.path.display();
        let at = |reason: String| match measure.name.as_str() {
            NONE => Failure::Input(format!("{file}: {reason}")),
            name => Failure::Input(format!("{file}: measure `{name}`: {reason}")),
        };
        let set: Vec<Setting> =
            measure.set.iter().map(|text| setting(text)).collect::<Result<_, _>>().map_err(at)?;
        let machine = load_with(&self.machine, &set).map_err(|error| at(error.to_string()))?;
        let nodes = self.job.iter().fold(0, |sum: u32, job| sum.saturating_add(job.nodes));
        check_nodes(&machine, "the sum of the jobs' nodes,", nodes)
            .map_err(|error| at(error.to_string()))?;
        let none = Choices::default();
        let file_system = self.file_system().map_err(at)?;
        let with_choices = |job: &JobEntry| {
            let changed = measure.job.get(&job.name).unwrap_or(&none);
            job.study_job(changed, &file_system)
                .map_err(|reason| at(format!("job `{}`: {reason}", job.name)))
        };
        let jobs: Vec<StudyJob> = self.job.iter().map(with_choices).collect::<Result<_, _>>()?;
        let options = SimOptions {
            seed,
            routing: measure.routing.as_deref().map(routing).transpose().map_err(at)?,
            fidelity: self
                .fidelity
                .as_deref()
                .map(fidelity)
                .transpose()
                .map_err(at)?
                .unwrap_or_default(),
            server_queues: measure
                .server_queues
                .as_deref()
                .map(server_queues)
                .transpose()
                .map_err(at)?
                .unwrap_or_default(),
            file_system,
            observe: ObserveOptions { delays: self.job.len() > 1, ..ObserveOptions::default() },
            ..SimOptions::default()
        };
        check_jobs_fit(&machine, &jobs, &options)
            .map_err(|error| at(study_failure(&error).to_string()))?;
        let machine_files = machine.files.iter().map(|file| {
            format!("{}: CRC-32C {:08x}\n", file.name, crc32c::crc32c(file.text.as_bytes()))
        });
        let warm_up = self.warm_up().map_err(at)?;
        let warm_up = warm_up.map_or(String::new(), |time| format!("warm-up {time}\n"));
        let inputs = format!(
            "forebay {VERSION}\n{measure:?}\n{jobs:?}\n{options:?}\n{warm_up}{}{}",
            machine_files.collect::<String>(),
            machine_text(&machine)
        );
        Ok(Case { measure: measure.name.clone(), seed, machine, jobs, options, inputs })
    }
}

impl StudyFile {
    /// The file system of the I/O jobs.
    fn file_system(&self) -> Result<FileSystem, String> {
        let is_parallel = match self.file_system.as_deref() {
            None | Some("burst-buffer") => false,
            Some("pfs") => true,
            Some(other) => {
                return Err(format!("no file system `{other}`; there are burst-buffer, pfs"));
            }
        };
        match (is_parallel, self.stripe_count) {
            (_, Some(0)) => Err("`stripe_count` is at least 1".into()),
            (false, Some(_)) => Err("`stripe_count` is for `file_system = \"pfs\"`".into()),
            (false, None) => Ok(FileSystem::BurstBuffer),
            (true, stripe_count) => Ok(FileSystem::Parallel { stripe_count, stripe: None }),
        }
    }
}

/// The first text, in alphabetical order, that is there twice.
fn first_twice(mut names: Vec<&str>) -> Option<&str> {
    names.sort_unstable();
    names.windows(2).find(|two| two[0] == two[1]).map(|two| two[0])
}

fn routing(name: &str) -> Result<Routing, String> {
    let found = Routing::NAMES.iter().find(|(known, _)| *known == name);
    found.map(|(_, routing)| *routing).ok_or_else(|| {
        let known: Vec<&str> = Routing::NAMES.iter().map(|(known, _)| *known).collect();
        format!("no routing algorithm `{name}`; there are {}", known.join(", "))
    })
}

fn server_queues(name: &str) -> Result<ServerQueues, String> {
    match name {
        "arrival" => Ok(ServerQueues::Arrival),
        "fair" => Ok(ServerQueues::FairShares),
        _ => Err(format!("no order of servers' queues `{name}`; there are arrival, fair")),
    }
}

fn rate_limit(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(rate) if rate >= LEAST_RATE_LIMIT => Ok(rate),
        Ok(rate) => Err(format!("rate_limit: {rate}; a limit is at least {LEAST_RATE_LIMIT}")),
        Err(error) => Err(format!("rate_limit: {error}")),
    }
}

impl JobEntry {
    fn choices(&self) -> Choices {
        Choices {
            placement: self.placement.clone(),
            groups: self.groups.clone(),
            start: self.start.clone(),
            burst_buffers: self.burst_buffers,
            storage_groups: self.storage_groups.clone(),
            separate_storage: self.separate_storage,
            rate_limit: self.rate_limit.clone(),
            storage_per_group: self.storage_per_group,
        }
    }

    /// The job with the choices of a measure, on this file system if it is one of I/O.
    fn study_job(&self, changed: &Choices, file_system: &FileSystem) -> Result<StudyJob, String> {
        let choices = changed.or(&self.choices());
        if let (Some(_), FileSystem::Parallel { .. }, Some(name)) =
            (&self.ior, file_system, choices.of_burst_buffer_only())
        {
            return Err(format!("`{name}` is for `file_system = \"burst-buffer\"`"));
        }
        let placement = match &choices.placement {
            Some(name) => name.parse::<Placement>().map_err(|error| error.to_string())?,
            None => Placement::Contiguous,
        };
        let work = match (&self.ior, &self.traffic) {
            (Some(ior), None) => JobWork::Io(IoWork {
                ior: test(ior)?,
                ppn: self.ppn.unwrap_or(1),
                start: match &choices.start {
                    Some(text) => text.parse::<Time>().map_err(|e| format!("start: {e}"))?,
                    None => Time::ZERO,
                },
                rate_limit: choices.rate_limit.as_deref().map(rate_limit).transpose()?,
                storage: choices.storage()?,
            }),
            (None, Some(traffic)) => match (self.ppn, choices.of_io_only()) {
                (None, None) => JobWork::Traffic(traffic.spec(&choices)?),
                (Some(_), _) => return Err("`ppn` is for I/O jobs".into()),
                (None, Some(name)) => return Err(format!("`{name}` is for I/O jobs")),
            },
            (Some(_), Some(_)) | (None, None) => {
                return Err("give it either `ior` or `traffic`".into());
            }
        };
        Ok(StudyJob {
            name: self.name.clone(),
            nodes: self.nodes,
            placement,
            groups: choices.groups.as_deref().map(groups).transpose()?,
            work,
        })
    }
}

fn test(line: &str) -> Result<Ior, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let tests = Ior::parse(&words).map_err(|error| error.to_string())?;
    <[Ior; 1]>::try_from(tests)
        .map(|[test]| test)
        .map_err(|tests| format!("`ior` has {} tests; a job has one", tests.len()))
}

impl TrafficEntry {
    fn spec(&self, choices: &Choices) -> Result<TrafficSpec, String> {
        let limit = choices.rate_limit.as_deref().map(rate_limit).transpose()?;
        let pattern: TrafficPattern = self.pattern.parse().map_err(|e| format!("{e}"))?;
        let message: Bytes = self.message.parse().map_err(|e| format!("message: {e}"))?;
        TrafficSpec::new(pattern, message, self.load, self.messages)
            .and_then(|spec| spec.with_rate_limit(limit))
            .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn studies_of_the_examples_can_be_simulated() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
        for name in ["interference", "isolation", "sizing"] {
            let study = StudyFile::read(&examples.join(format!("{name}.toml"))).unwrap();
            assert!(study.cases().unwrap().len() > 1, "{name} has measures");
        }
    }
}
