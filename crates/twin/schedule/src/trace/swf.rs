//! The Standard Workload Format (Feitelson, Parallel Workloads Archive): a line for each job with 18 numbers,
//! and comments that begin with `;`.

use super::{Trace, TraceError, TraceOptions};
use crate::job::Job;
use crate::time::Millis;

/// Fields of a line.
const FIELDS: usize = 18;

/// Reads a trace. Processors become nodes, rounded up.
///
/// # Errors
/// A line that is not as the format demands.
pub fn parse_swf(text: &str, options: &TraceOptions) -> Result<Trace, TraceError> {
    let per_node = options.processors_per_node.max(1);
    let mut trace = Trace::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let failed = |problem: String| TraceError::Line { line: index + 1, problem };
        if let Some(comment) = line.strip_prefix(';') {
            if let Some(("MaxProcs", value)) =
                comment.split_once(':').map(|(key, value)| (key.trim(), value.trim()))
            {
                trace.nodes = value.parse::<u32>().ok().map(|count| count.div_ceil(per_node));
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() < FIELDS {
            return Err(failed(format!(
                "{} fields; a job has {FIELDS} (Standard Workload Format)",
                words.len()
            )));
        }
        let number = |field: usize, what: &str| {
            let value = words[field - 1].parse::<f64>().ok().filter(|value| value.is_finite());
            value.ok_or_else(|| {
                failed(format!("field {field} ({what}) is {:?}, not a number", words[field - 1]))
            })
        };
        let id = number(1, "job number")?;
        if id < 0.0 {
            return Err(failed(format!("job number {id}; numbers are not negative")));
        }
        let id = id as u64;
        let (submitted, run) = (number(2, "submit time")?, number(4, "run time")?);
        let (allocated, processors) =
            (number(5, "allocated processors")?, number(8, "requested processors")?);
        let requested = number(9, "requested time")?;
        let processors = if processors > 0.0 { processors } else { allocated };
        let requested = if requested > 0.0 { requested } else { run };
        let times =
            (Millis::of_seconds(submitted), Millis::of_seconds(run), Millis::of_seconds(requested));
        let (Some(arrival), Some(run), Some(requested)) = times else {
            let reason = format!("submitted at {submitted} s, ran for {run} s");
            trace.left_out.push((id, reason));
            continue;
        };
        if !(1.0..=f64::from(u32::MAX)).contains(&processors) {
            trace.left_out.push((id, format!("{processors} processors")));
            continue;
        }
        let nodes = (processors as u32).div_ceil(per_node);
        trace.push(Job::new(id, arrival, nodes, requested, run), run)?;
    }
    Ok(trace.sorted())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "; MaxProcs: 100\n\
        ; Note: MaxProcs is above\n\
        2 20 1 7.5 4 -1 -1 4 10 -1 1 1 1 -1 -1 -1 -1 -1\n\
        1 10 1 30 3 -1 -1 -1 25 -1 1 1 1 -1 -1 -1 -1 -1\n\n\
        3 30 1 -1 3 -1 -1 3 25 -1 1 1 1 -1 -1 -1 -1 -1\n\
        4 30 1 5 -1 -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1\n\
        5 40 1 5 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1\n";

    #[test]
    fn jobs_are_read_in_the_order_of_arrival() {
        let options = TraceOptions { processors_per_node: 2, ..TraceOptions::default() };
        let trace = parse_swf(TEXT, &options).unwrap();
        let seconds = Millis::from_seconds;
        assert_eq!(
            trace.jobs,
            [
                Job::new(1, seconds(10), 2, seconds(25), seconds(30)),
                Job::new(2, seconds(20), 2, seconds(10), Millis(7500)),
                Job::new(5, seconds(40), 1, seconds(5), seconds(5)),
            ]
        );
        // The first job ends at its limit.
        assert_eq!((trace.jobs[0].run, trace.cut), (seconds(25), 1));
        assert_eq!(trace.nodes, Some(50));
        let left_out: Vec<u64> = trace.left_out.iter().map(|(id, _)| *id).collect();
        assert_eq!(left_out, [3, 4]);
    }

    #[test]
    fn errors_name_line_and_field() {
        let options = TraceOptions::default();
        let error = parse_swf("; x\n1 2 3\n", &options).unwrap_err().to_string();
        assert!(error.starts_with("line 2: 3 fields; a job has 18"), "{error}");
        let line = "1 x 1 7 4 -1 -1 4 10 -1 1 1 1 -1 -1 -1 -1 -1";
        let error = parse_swf(line, &options).unwrap_err().to_string();
        assert_eq!(error, "line 1: field 2 (submit time) is \"x\", not a number");
    }
}
