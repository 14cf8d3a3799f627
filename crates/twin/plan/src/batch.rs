//! Options of a batch script: the lines `#SBATCH`.

/// The size and time of a job in its batch script. Options that it does not have, and forms that
/// do not determine a number, are `None`.
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

impl BatchOptions {
    /// Reads the lines `#SBATCH` at the head of a script. As in Slurm, they end at the first command, and
    /// the first of several equal options counts.
    pub fn parse(script: &str) -> BatchOptions {
        let mut options = BatchOptions::default();
        let head = script.lines().take_while(|line| {
            let line = line.trim_start();
            line.is_empty() || line.starts_with('#')
        });
        for line in head {
            let Some(rest) = line.strip_prefix("#SBATCH") else { continue };
            let mut words = rest.split_whitespace().peekable();
            while let Some(word) = words.next() {
                if word.starts_with('#') {
                    break;
                }
                let (name, value) = split(word);
                let next = if value.is_none() { words.peek().copied() } else { None };
                options.read(name, value.or(next).unwrap_or_default());
            }
        }
        options
    }

    fn read(&mut self, name: &str, value: &str) {
        let count = || value.parse::<u32>().ok().filter(|count| *count > 0);
        match name {
            "--nodes" | "-N" => {
                let last = value.rsplit('-').next().unwrap_or_default();
                let last = last.parse().ok().filter(|count| *count > 0);
                self.nodes = self.nodes.or(last);
            }
            "--ntasks-per-node" => self.tasks_per_node = self.tasks_per_node.or_else(count),
            "--ntasks" | "-n" => self.tasks = self.tasks.or_else(count),
            "--time" | "-t" => self.time = self.time.or_else(|| slurm_time(value)),
            _ => {}
        }
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
        let options = BatchOptions::parse(script);
        assert_eq!(options.nodes, Some(64));
        assert_eq!(options.tasks_per_node, Some(32));
        assert_eq!(options.tasks, None);
        assert_eq!(options.time, Some(86_400.0 + 2.5 * 3600.0));
        assert_eq!(options.per_node(64), Some(32));
    }

    #[test]
    fn tasks_are_divided_over_the_nodes_and_ranges_end_at_their_last_number() {
        let options = BatchOptions::parse("#SBATCH --nodes=2-4\n#SBATCH -n10 -t 90\n");
        assert_eq!((options.nodes, options.time), (Some(4), Some(5400.0)));
        assert_eq!(options.per_node(4), Some(3));
        assert_eq!(BatchOptions::parse("#SBATCH -N 0 -t x --ntasks"), BatchOptions::default());
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
