//! Options of a batch script: the lines `#SBATCH`.

/// The size and time of a job in its batch script. Options that it does not have are `None`, and so are
/// times that are no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchOptions {
    /// `--nodes`: compute nodes; of a range, its end.
    pub nodes: Option<u32>,
    /// `--ntasks-per-node`.
    pub tasks_per_node: Option<u32>,
    /// `--ntasks`.
    pub tasks: Option<u32>,
    /// `--time`: the time limit, seconds.
    pub time: Option<f64>,
}

/// An option of a batch script whose value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableOption {
    /// Its line.
    pub line: u32,
    /// The option and its value.
    pub text: String,
    /// The property of the job that the option sets.
    pub kind: OptionKind,
}

/// The property of a job that an option of its batch script sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// The number of nodes.
    Nodes,
    /// The number of processes.
    Tasks,
    /// The time limit.
    Time,
}

impl BatchOptions {
    /// Reads the lines `#SBATCH` at the head of a script, and returns what could not be read with it. As in
    /// Slurm, they end at the first command, and the first of several equal options counts.
    pub fn parse(script: &str) -> (BatchOptions, Vec<UnreadableOption>) {
        let mut options = BatchOptions::default();
        let mut unreadable = Vec::new();
        let head = script.lines().zip(1..).take_while(|(line, _)| {
            let line = line.trim_start();
            line.is_empty() || line.starts_with('#')
        });
        for (line, number) in head {
            let Some(rest) = line.strip_prefix("#SBATCH") else { continue };
            let mut words = rest.split_whitespace().peekable();
            while let Some(word) = words.next() {
                if word.starts_with('#') {
                    break;
                }
                let (name, value) = split(word);
                let next = if value.is_none() { words.peek().copied() } else { None };
                let value = value.or(next).unwrap_or_default();
                if let Some(kind) = options.read(name, value) {
                    let text = format!("{name} {value}").trim_end().to_owned();
                    unreadable.push(UnreadableOption { line: number, text, kind });
                }
            }
        }
        (options, unreadable)
    }

    /// Reads an option; its kind if its value cannot be read.
    fn read(&mut self, name: &str, value: &str) -> Option<OptionKind> {
        let set = |field: &mut Option<u32>, value: Option<u32>| {
            *field = field.or(value);
            value.is_some()
        };
        let (kind, is_read) = match name {
            "--nodes" | "-N" => {
                let ends = value.splitn(2, '-').map(count).collect::<Option<Vec<u32>>>();
                let last = ends.and_then(|ends| ends.last().copied());
                (OptionKind::Nodes, set(&mut self.nodes, last))
            }
            "--ntasks-per-node" => (OptionKind::Tasks, set(&mut self.tasks_per_node, count(value))),
            "--ntasks" | "-n" => (OptionKind::Tasks, set(&mut self.tasks, count(value))),
            "--time" | "-t" if has_no_limit(value) => return None,
            "--time" | "-t" => {
                let time = slurm_time(value);
                self.time = self.time.or(time);
                (OptionKind::Time, time.is_some())
            }
            _ => return None,
        };
        (!is_read).then_some(kind)
    }

    /// Processes per node on `nodes` nodes.
    pub fn per_node(&self, nodes: u32) -> Option<u32> {
        self.tasks_per_node.or_else(|| Some(self.tasks?.div_ceil(nodes.max(1))))
    }
}

/// An option's name and value: `--nodes=4`, `-N4`, `--nodes` without one.
fn split(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
    }
    match word.char_indices().nth(2) {
        Some((at, _)) if word.starts_with('-') => (&word[..at], Some(&word[at..])),
        _ => (word, None),
    }
}

/// A number above 0, of which Slurm counts `k` as 1024 and `m` as 1024².
fn count(text: &str) -> Option<u32> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((end, 'k' | 'K')) => (&text[..end], 1 << 10),
        Some((end, 'm' | 'M')) => (&text[..end], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u32>().ok()?.checked_mul(factor).filter(|count| *count > 0)
}

/// Whether Slurm takes a time as none.
fn has_no_limit(text: &str) -> bool {
    let words = ["0", "-1", "infinite", "unlimited"];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Seconds of Slurm's `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`,
/// `days-hours:minutes`, `days-hours:minutes:seconds`.
fn slurm_time(text: &str) -> Option<f64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u32>().ok()?), rest),
        None => (None, text),
    };
    let parts: Vec<u32> = rest.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = |hours: u32, minutes: u32, seconds: u32| {
        f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0 + f64::from(seconds)
    };
    let rest = match (days, parts.as_slice()) {
        (Some(_), [hours]) => seconds(*hours, 0, 0),
        (Some(_), [hours, minutes]) => seconds(*hours, *minutes, 0),
        (None, [minutes]) => seconds(0, *minutes, 0),
        (None, [minutes, rest]) => seconds(0, *minutes, *rest),
        (_, [hours, minutes, rest]) => seconds(*hours, *minutes, *rest),
        (_, _) => return None,
    };
    Some(f64::from(days.unwrap_or(0)) * 86_400.0 + rest).filter(|time| *time > 0.0)
}

/// Seconds of a duration such as `30min`, `90s`, `1.5h` or `2d`.
///
/// # Errors
/// The text is no positive duration; the message says what is expected.
pub fn parse_duration(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor = match text[end..].trim() {
        "s" => Some(1.0),
        "min" => Some(60.0),
        "h" => Some(3600.0),
        "d" => Some(86_400.0),
        _ => None,
    };
    let number = text[..end].trim().parse::<f64>().ok();
    match number.zip(factor).map(|(number, factor)| number * factor) {
        Some(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(seconds),
        _ => Err(format!("`{text}` is not a duration; write one as 90s, 30min, 1.5h or 2d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_the_first_command_are_read() {
        let script = "#!/bin/sh\n#SBATCH -N 64 --time=1-02:30:00 # comment --ntasks=3\n\
                      #SBATCH --ntasks-per-node=32\n#DW jobdw capacity=1GiB\n\necho\n#SBATCH -n 5\n";
        let (options, unreadable) = BatchOptions::parse(script);
        assert_eq!(unreadable, []);
        assert_eq!(options.nodes, Some(64));
        assert_eq!(options.tasks_per_node, Some(32));
        assert_eq!(options.tasks, None);
        assert_eq!(options.time, Some(86_400.0 + 2.5 * 3600.0));
        assert_eq!(options.per_node(64), Some(32));
    }

    #[test]
    fn tasks_are_divided_over_the_nodes_and_ranges_end_at_their_last_number() {
        let (options, _) = BatchOptions::parse("#SBATCH --nodes=2-4\n#SBATCH -n10 -t 90\n");
        assert_eq!((options.nodes, options.time), (Some(4), Some(5400.0)));
        assert_eq!(options.per_node(4), Some(3));
        let (options, _) = BatchOptions::parse("#SBATCH -N 1k -t UNLIMITED");
        assert_eq!((options.nodes, options.time), (Some(1024), None));
    }

    #[test]
    fn values_that_cannot_be_read_are_returned_with_their_lines() {
        let script = "#!/bin/sh\n#SBATCH -N 0 -t x\n#SBATCH --nodes=2-x\n#SBATCH --ntasks\n";
        let (options, unreadable) = BatchOptions::parse(script);
        assert_eq!(options, BatchOptions::default());
        let found: Vec<_> = unreadable.iter().map(|one| (one.line, one.text.as_str())).collect();
        assert_eq!(found, [(2, "-N 0"), (2, "-t x"), (3, "--nodes 2-x"), (4, "--ntasks")]);
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("30min"), Ok(1800.0));
        assert_eq!(parse_duration("1.5 h"), Ok(5400.0));
        for wrong in ["30", "", "h", "-3s", "0s", "1e300d", "3 weeks", "nan s"] {
            assert!(parse_duration(wrong).unwrap_err().contains("30min"), "{wrong}");
        }
    }
}
