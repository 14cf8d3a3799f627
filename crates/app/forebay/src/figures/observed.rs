//! Figures of jobs, servers and links over time.

use crate::plot::axis::{self, Scale};
use crate::plot::lines::{Chart, Line};
use forebay_machine::observe::{SeriesTable, TimeSeries};

/// Lines of a chart: as many as there are colours.
const MOST_LINES: usize = 6;

/// The charts of a run's time series: of servers and links the busiest.
pub fn over_time(series: &TimeSeries) -> Vec<Chart> {
    let bytes = |table: &SeriesTable, columns: &[usize]| {
        let scale = 1e-9 / table.interval;
        lines(table, |values| columns.iter().map(|c| values[*c]).sum::<f64>() * scale)
    };
    let (jobs, servers, links) = (&series.jobs, &series.servers, &series.links);
    let charts = [
        ("Jobs: GB/s delivered", jobs, bytes(jobs, &[1])),
        ("Jobs: MB under way", jobs, lines(jobs, |values| values[2] * 1e-6)),
        ("Busiest servers: GB/s", servers, bytes(servers, &[0, 1])),
        ("Busiest servers: requests", servers, lines(servers, |values| values[2])),
        ("Busiest links: utilization", links, lines(links, |values| values[2])),
        ("Busiest links: deepest queue in KB", links, lines(links, |values| values[1] * 1e-3)),
    ];
    let shown = charts.into_iter().filter(|(_, _, lines)| !lines.is_empty());
    shown.map(|(title, table, lines)| chart(title, table, lines)).collect()
}

fn lines(table: &SeriesTable, value: impl Fn(&[f64]) -> f64) -> Vec<Line> {
    let (factor, _) = unit(table);
    let line = |(name, intervals): &(String, Vec<Vec<f64>>)| {
        let times = (1..).map(|i| f64::from(i) * table.interval * factor);
        let values = intervals.iter().map(|values| value(values));
        Line { name: short(name), points: times.zip(values).collect(), ..Line::default() }
    };
    table.rows.iter().take(MOST_LINES).map(line).collect()
}

/// The unit of time that suits the length of a run, and its number in a second.
fn unit(table: &SeriesTable) -> (f64, &'static str) {
    let longest = table.rows.iter().map(|(_, intervals)| intervals.len()).max().unwrap_or(0);
    match longest as f64 * table.interval {
        s if s < 1e-3 => (1e6, "us"),
        s if s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    }
}

/// The name of a link without its class, which is too long for a label.
fn short(name: &str) -> String {
    name.split_once(" link, ").map_or(name, |(_, ends)| ends).replace("group ", "g")
}

fn chart(title: &str, table: &SeriesTable, lines: Vec<Line>) -> Chart {
    Chart {
        title: title.to_string(),
        x_name: format!("simulated time in {}", unit(table).1),
        x_label: axis::label,
        x_scale: Scale::Linear,
        x_at_points: false,
        y_top: 0.0,
        lines,
        size: (560.0, 220.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_have_the_busiest_rows_and_a_fitting_unit_of_time() {
        let row = |i: usize| (format!("node {i}"), vec![vec![2e9, 1e9, 4.0, 0.5]; 3]);
        let servers = SeriesTable {
            interval: 1e-3,
            columns: &["written_bytes", "read_bytes", "mean_requests", "flash_utilisation"],
            rows: (0..9).map(row).collect(),
        };
        let charts = over_time(&TimeSeries { servers, ..TimeSeries::default() });
        let titles: Vec<&str> = charts.iter().map(|c| c.title.as_str()).collect();
        assert_eq!(titles, ["Busiest servers: GB/s", "Busiest servers: requests"]);
        assert_eq!(charts[0].lines.len(), 6);
        // 3 GB in a millisecond.
        assert_eq!(charts[0].lines[0].points[0], (1.0, 3_000.0));
        assert_eq!(charts[0].x_name, "simulated time in ms");
        assert_eq!(short("rank-2 link, group 3: c1s4 -> c0s4"), "g3: c1s4 -> c0s4");
    }
}
