//! Parts that several reports share.

use super::Inputs;
use crate::figures::ior::resource;
use crate::plot::heat;
use crate::plot::palette::PAGE;
use crate::plot::svg::Svg;
use forebay_machine::estimate::Replication;
use forebay_machine::observe::{Delays, Observed};
use forebay_machine::results::{ClassUse, Limit, RunCost, Series};
use forebay_units::human::{self, bytes, count, counted, grouped, percent, seconds};
use maud::{Markup, PreEscaped, html};

/// A figure with a caption, which may be empty.
pub(crate) fn figure(svg: &Svg, caption: &str) -> Markup {
    html! {
        figure {
            (PreEscaped(svg.element("chart")))
            @if !caption.is_empty() { figcaption { (caption) } }
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    /// The value by which the column is sorted; the text if there is none.
    sort_key: Option<f64>,
}

/// A cell of text.
pub(crate) fn text(value: impl Into<String>) -> Cell {
    Cell { text: value.into(), sort_key: None }
}

/// A cell that shows `shown` and is sorted by `value`.
pub(crate) fn number(value: f64, shown: String) -> Cell {
    Cell { text: shown, sort_key: Some(if value.is_finite() { value } else { -1.0 }) }
}

/// A sortable table; a heading that begins with `#` is that of a column of numbers.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> Markup {
    let is_number = |heading: &str| heading.starts_with('#');
    let class = |heading: &str, cell: &Cell| match () {
        () if is_number(heading) => Some("n"),
        // Short texts are not wrapped.
        () if cell.text.chars().count() <= 24 => Some("s"),
        () => None,
    };
    html! {
        div.scroll {
            table.sortable {
                thead {
                    tr {
                        @for heading in headings {
                            th scope="col" class=[is_number(heading).then_some("n")] {
                                (heading.trim_start_matches('#'))
                            }
                        }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (heading, cell) in headings.iter().zip(&row) {
                                td class=[class(heading, cell)] data-key=[cell.sort_key] {
                                    (cell.text)
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A list of names and values.
pub(crate) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> Markup {
    html! {
        dl {
            @for (name, value) in facts {
                div {
                    dt { (name) }
                    dd { (value) }
                }
            }
        }
    }
}

/// Warnings about a result, if there are any.
pub(crate) fn warnings(warnings: &[String]) -> Markup {
    html! {
        @for warning in warnings { p { strong { "Warning: " } (warning) } }
    }
}

/// Means and confidence intervals of replicates, if there are any.
pub(crate) fn replication(replication: Option<&Replication>) -> Markup {
    let Some(replication) = replication else {
        return Markup::default();
    };
    let rows = replication.estimates.iter().map(|estimate| {
        let half_width = estimate.half_width.unwrap_or(f64::NAN);
        let deviation = estimate.deviation.unwrap_or(f64::NAN);
        vec![
            text(&estimate.name),
            number(estimate.mean, human::number(estimate.mean)),
            number(half_width, human::number(half_width)),
            number(deviation, human::number(deviation)),
            text(&estimate.unit),
        ]
    });
    let headings = ["quantity", "#mean", "#95% interval, ±", "#standard deviation", "unit"];
    html! {
        h4 { "Mean of " (replication.seeds.len()) " seeds" }
        (table(&headings, rows))
    }
}

/// A block that can be folded, with its summary line.
pub(crate) fn foldable(summary: Markup, open: bool, content: Markup) -> Markup {
    html! {
        details.point open[open] {
            summary { (summary) }
            (content)
        }
    }
}

/// The limiting resource and the evidence for it.
pub(crate) fn limit(limit: &Limit) -> Markup {
    let rows = limit.evidence.iter().map(|r| {
        vec![
            text(&r.resource),
            text(&r.busiest),
            number(r.peak_utilisation, percent(r.peak_utilisation)),
            number(r.mean_utilisation, percent(r.mean_utilisation)),
            number(r.time_share, percent(r.time_share)),
        ]
    });
    let headings = [
        "resource",
        "busiest instance",
        "#utilization of the busiest",
        "#mean utilization of those used",
        "#share of an operation's time",
    ];
    html! {
        p { "Limited by the " strong { (resource(&limit.resource)) } ": " (limit.because) }
        (table(&headings, rows))
    }
}

/// Utilization of the link classes.
pub(crate) fn links(links: &[ClassUse]) -> Markup {
    let rows = links.iter().map(|c| {
        vec![
            text(&c.class),
            number(c.links as f64, grouped(c.links)),
            number(c.bytes as f64, bytes(c.bytes)),
            number(c.mean_utilisation, percent(c.mean_utilisation)),
            number(c.max_utilisation, percent(c.max_utilisation)),
            number(c.stall_seconds, seconds(c.stall_seconds)),
            number(c.max_queue_bytes as f64, bytes(c.max_queue_bytes)),
        ]
    });
    let headings = [
        "links",
        "#number",
        "#bytes carried",
        "#mean utilization",
        "#busiest link",
        "#waiting for credits, sum",
        "#deepest queue",
    ];
    table(&headings, rows)
}

/// The group-by-group heat map with its values for the script.
pub(crate) fn heat_map(title: &str, matrix: &[Vec<u64>]) -> Markup {
    if matrix.is_empty() {
        return Markup::default();
    }
    let map = heat::draw(title, matrix, &PAGE);
    let values = serde_json::json!({
        "x": map.origin.0,
        "y": map.origin.1,
        "cell": map.cell,
        "bytes": matrix,
    });
    html! {
        figure {
            (PreEscaped(map.svg.element("heat")))
            script type="application/json" { (PreEscaped(values.to_string())) }
        }
    }
}

/// The time series of a run.
pub(crate) fn over_time(series: &Series) -> Markup {
    let charts = crate::figures::phase::over_time(series);
    html! {
        @for chart in &charts { (figure(&chart.draw(&PAGE), "")) }
    }
}

/// Jobs, servers and links over time, and delays by cause, if they were observed.
pub(crate) fn observations(observed: &Observed, delays: Option<&Delays>) -> Markup {
    let charts = observed.series.as_ref().map(crate::figures::observed::over_time);
    html! {
        @if let Some(charts) = charts {
            h4 { "Jobs, servers and links over time" }
            (side_by_side(html! {
                @for chart in &charts { (figure(&chart.draw(&PAGE), "")) }
            }))
        }
        @if let Some(delays) = delays { (delays_by_cause(delays)) }
    }
}

fn delays_by_cause(delays: &Delays) -> Markup {
    let row = |place: String, job: &str, by: &[f64]| {
        let total: f64 = by.iter().sum();
        let causes = by.iter().map(|s| number(*s, seconds(*s)));
        let cells = [text(place), text(job), number(total, seconds(total))];
        cells.into_iter().chain(causes).collect::<Vec<_>>()
    };
    let of = |place: String, matrix: &[Vec<f64>]| {
        let rows = delays.jobs.iter().zip(matrix).filter(|(_, by)| by.iter().any(|s| *s > 0.0));
        rows.map(|(job, by)| row(place.clone(), job, by)).collect::<Vec<_>>()
    };
    let classes = delays.network.iter().map(|c| of(format!("{} links", c.class), &c.seconds));
    let servers = delays.servers.iter().map(|s| of(format!("server {}", s.node), &s.seconds));
    let mut headings = vec!["waits at".to_string(), "of".to_string(), "#in all".to_string()];
    headings.extend(delays.jobs.iter().map(|job| format!("#by {job}")));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    html! {
        h4 { "Delays by cause" }
        (table(&headings, classes.chain(servers).flatten()))
    }
}

/// Figures or tables side by side.
pub(crate) fn side_by_side(content: Markup) -> Markup {
    html! { div.pair { (content) } }
}

/// The cost of a simulation, as one sentence.
pub(crate) fn cost(run: &RunCost) -> Markup {
    let rate = run.events as f64 / run.wall_seconds.max(1e-9);
    html! {
        p.small {
            "Simulated " (seconds(run.simulated_seconds)) " in " (seconds(run.wall_seconds))
            " of wall time on " (counted(run.threads as u64, "thread")) ": "
            @if run.events > 0 {
                (count(run.events as f64)) " events (" (count(rate)) " per second), "
                (count(run.packets_delivered as f64)) " packets, peak memory "
                (bytes(run.peak_rss_bytes)) "."
            } @else {
                "flows, without packets."
            }
        }
    }
}

/// The last section of every report.
pub(crate) fn inputs(inputs: &Inputs) -> Markup {
    let settings = inputs.settings.iter();
    html! {
        pre.command { (inputs.command_line()) }
        (facts(settings.cloned()))
        details {
            summary { "The machine file" }
            pre { (inputs.machine_text) }
        }
    }
}
