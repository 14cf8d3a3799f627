//! Parts that several reports share.

use super::Inputs;
use crate::figures::ior::resource;
use crate::plot::palette::PAGE;
use crate::plot::svg::{Svg, escape};
use crate::plot::{heat, lines};
use crate::quantity::{bytes, count, percent, seconds, thousands};
use forebay_machine::results::{ClassUse, Limit, RunCost, Series};
use std::fmt::Write;

/// A figure with its caption.
pub(crate) fn figure(svg: &Svg, caption: &str) -> String {
    let caption = if caption.is_empty() {
        String::new()
    } else {
        format!("<figcaption>{}</figcaption>\n", escape(caption))
    };
    format!("<figure>\n{}{caption}</figure>\n", svg.element("chart"))
}

/// A table; headings that begin with `#` are columns of numbers. Each cell is what is shown and
/// what is sorted by (the shown text if that is empty).
pub(crate) fn table(headings: &[&str], rows: &[Vec<(String, String)>]) -> String {
    let mut out = String::from("<div class=\"scroll\"><table class=\"sortable\">\n<thead><tr>");
    for heading in headings {
        let (class, text) = match heading.strip_prefix('#') {
            Some(text) => (" class=\"n\"", text),
            None => ("", *heading),
        };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(text));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (heading, (text, key)) in headings.iter().zip(row) {
            let class = match heading.starts_with('#') {
                true => " class=\"n\"",
                false if text.chars().count() <= 24 => " class=\"s\"",
                false => "",
            };
            let key = if key.is_empty() {
                String::new()
            } else {
                format!(" data-key=\"{}\"", escape(key))
            };
            let _ = write!(out, "<td{class}{key}>{}</td>", escape(text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A cell of text.
pub(crate) fn text(value: impl Into<String>) -> (String, String) {
    (value.into(), String::new())
}

/// A cell that shows a number in words and sorts by the number.
pub(crate) fn number(value: f64, shown: String) -> (String, String) {
    (
        shown,
        if value.is_finite() {
            value.to_string()
        } else {
            "-1".to_string()
        },
    )
}

/// A list of names and values.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let mut out = String::from("<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(
            out,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            escape(name),
            escape(value)
        );
    }
    out.push_str("</dl>\n");
    out
}

/// The limit and what shows it.
pub(crate) fn limit(limit: &Limit) -> String {
    let rows: Vec<Vec<(String, String)>> = limit
        .evidence
        .iter()
        .map(|r| {
            vec![
                text(&r.resource),
                text(&r.busiest),
                number(r.peak_utilisation, percent(r.peak_utilisation)),
                number(r.mean_utilisation, percent(r.mean_utilisation)),
                number(r.time_share, percent(r.time_share)),
            ]
        })
        .collect();
    format!(
        "<p>Limited by the <strong>{}</strong>: {}</p>\n{}",
        escape(&resource(&limit.resource)),
        escape(&limit.because),
        table(
            &[
                "resource",
                "busiest one",
                "#busiest, busy",
                "#mean of those used",
                "#share of an operation's time"
            ],
            &rows
        )
    )
}

/// Use of the link classes.
pub(crate) fn links(links: &[ClassUse]) -> String {
    let rows: Vec<Vec<(String, String)>> = links
        .iter()
        .map(|c| {
            vec![
                text(&c.class),
                number(c.links as f64, thousands(c.links)),
                number(c.bytes as f64, bytes(c.bytes)),
                number(c.mean_utilisation, percent(c.mean_utilisation)),
                number(c.max_utilisation, percent(c.max_utilisation)),
                number(c.stall_seconds, seconds(c.stall_seconds)),
                number(c.max_queue_bytes as f64, bytes(c.max_queue_bytes)),
            ]
        })
        .collect();
    table(
        &[
            "links",
            "#number",
            "#carried",
            "#mean busy share",
            "#busiest link",
            "#waiting for credits, summed",
            "#deepest queue",
        ],
        &rows,
    )
}

/// The group-by-group map with the numbers behind it.
pub(crate) fn heat_map(title: &str, matrix: &[Vec<u64>]) -> String {
    if matrix.is_empty() {
        return String::new();
    }
    let map = heat::draw(title, matrix, &PAGE);
    let values: Vec<String> = matrix
        .iter()
        .map(|row| {
            let row: Vec<String> = row.iter().map(u64::to_string).collect();
            format!("[{}]", row.join(","))
        })
        .collect();
    format!(
        "<figure>\n{}<script type=\"application/json\">{{\"x\":{},\"y\":{},\"cell\":{},\"bytes\":[{}]}}</script>\n</figure>\n",
        map.svg.element("heat"),
        map.origin.0,
        map.origin.1,
        map.cell,
        values.join(",")
    )
}

/// The time series of a run.
pub(crate) fn over_time(series: &Series) -> String {
    let charts = crate::figures::phase::over_time(series);
    charts
        .iter()
        .map(|c: &lines::Chart| figure(&c.draw(&PAGE), ""))
        .collect()
}

/// What the simulation cost, as one sentence.
pub(crate) fn cost(run: &RunCost) -> String {
    let rate = run.events as f64 / run.wall_seconds.max(1e-9);
    format!(
        "<p class=\"small\">Simulated {} in {} of wall time on {} {}: {} events ({} a second), {} packets, {} at most in memory.</p>\n",
        seconds(run.simulated_seconds),
        seconds(run.wall_seconds),
        run.threads,
        if run.threads == 1 {
            "thread"
        } else {
            "threads"
        },
        count(run.events as f64),
        count(rate),
        count(run.packets_delivered as f64),
        bytes(run.peak_rss_bytes)
    )
}

/// The last section of every report.
pub(crate) fn inputs(inputs: &Inputs) -> String {
    let settings: Vec<(&str, String)> = inputs
        .settings
        .iter()
        .map(|(n, v)| (n.as_str(), v.clone()))
        .collect();
    format!(
        "<pre class=\"command\">{}</pre>\n{}<details>\n<summary>The machine file</summary>\n<pre>{}</pre>\n</details>\n",
        escape(&inputs.command_line()),
        facts(&settings),
        escape(&inputs.machine_text)
    )
}
