//! Rates against node count (or streams, or transfer size), with published measurements and the
//! limiting resource.

use super::axis::{Axis, Scale, label};
use super::palette::Palette;
use super::svg::{Anchor, Stroke, Svg, TextStyle, fitted, width_of};
use forebay_units::human::number;

pub(super) const WIDTH: f64 = 760.0;
const HEADING: f64 = 52.0;
pub(super) const HEIGHT: f64 = 408.0;
pub(super) const LEFT: f64 = 66.0;
pub(super) const RIGHT: f64 = 132.0;
pub(super) const TOP: f64 = 36.0;
pub(super) const BOTTOM: f64 = 54.0;

/// One simulated curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// `write` or `read`; curves and published marks of one name share a colour.
    pub name: String,
    /// (x, GB/s), ascending in x.
    pub points: Vec<(f64, f64)>,
    /// Half widths of the points' confidence intervals, GB/s; empty without replicates.
    pub half_widths: Vec<f64>,
}

/// One published measurement.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Name of the curve with which it is compared.
    pub name: String,
    /// Range of x for which it was published; equal ends for a single point.
    pub span: (f64, f64),
    /// GB/s; a `per_x` value is multiplied by x.
    pub value: f64,
    /// Whether the value is per node and so drawn as a rising line.
    pub per_x: bool,
    /// The tooltip.
    pub tip: String,
}

/// A figure of rates.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Heading.
    pub title: String,
    /// Second line: the conditions.
    pub subtitle: String,
    /// Name of the x axis.
    pub x_name: String,
    /// Label of an x value.
    pub x_label: fn(f64) -> String,
    /// Simulated curves.
    pub curves: Vec<Curve>,
    /// Published measurements.
    pub marks: Vec<Mark>,
    /// Limiting resource by x, ascending in x.
    pub limits: Vec<(f64, String)>,
}

impl Figure {
    /// Draws the figure with its heading.
    pub fn draw(&self, palette: &Palette) -> Svg {
        let mut svg = Svg::new(WIDTH, HEADING, &self.title);
        svg.text((16.0, 26.0), TextStyle::plain(16.0, palette.ink).bold(), false, &self.title);
        svg.text(
            (16.0, 45.0),
            TextStyle::plain(12.0, palette.muted),
            false,
            &fitted(&self.subtitle, 12.0, WIDTH - 32.0),
        );
        svg.below(&self.draw_plain(palette));
        svg
    }

    /// Draws the figure without its heading.
    pub fn draw_plain(&self, palette: &Palette) -> Svg {
        let mut svg = Svg::new(WIDTH, HEIGHT, &self.title);
        let x = self.x_axis();
        let y = self.y_axis(&x);
        self.draw_axes(&mut svg, palette, &x, &y);
        self.draw_limits(&mut svg, palette, &x);
        for mark in &self.marks {
            if let Some((a, b)) = self.clip(&x, mark).filter(|(a, b)| a.0 < b.0) {
                let colour = self.colour(palette, &mark.name);
                svg.halo((x.at(a.0), y.at(a.1)), (x.at(b.0), y.at(b.1)), colour);
            }
        }
        self.draw_curves(&mut svg, palette, &x, &y);
        for mark in &self.marks {
            self.draw_mark(&mut svg, palette, &x, &y, mark);
        }
        svg
    }

    pub(super) fn colour(&self, palette: &Palette, name: &str) -> &'static str {
        match name {
            "write" => palette.series(0),
            "read" => palette.series(1),
            other => {
                let index = self.curves.iter().position(|c| c.name == other).unwrap_or(0);
                palette.series(index + 2)
            }
        }
    }

    fn xs(&self) -> Vec<f64> {
        let mut xs: Vec<f64> =
            self.curves.iter().flat_map(|c| c.points.iter().map(|p| p.0)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    fn x_axis(&self) -> Axis {
        let xs = self.xs();
        let (low, high) = (xs.first().copied().unwrap_or(1.0), xs.last().copied().unwrap_or(1.0));
        // A margin on both sides keeps the marks off the frame.
        Axis::new(Scale::Log, low / 1.3, high * 1.3, LEFT, WIDTH - RIGHT)
    }

    fn y_axis(&self, x: &Axis) -> Axis {
        let simulated = self.curves.iter().flat_map(|c| c.points.iter().map(|p| p.1));
        let published =
            self.marks.iter().filter_map(|m| self.clip(x, m)).flat_map(|(a, b)| [a.1, b.1]);
        let all: Vec<f64> =
            simulated.chain(published).filter(|v| v.is_finite() && *v > 0.0).collect();
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let high = all.iter().copied().fold(0.0, f64::max);
        let span = (HEIGHT - BOTTOM, TOP);
        if high / low > 8.0 {
            Axis::new(Scale::Log, low / 1.5, high * 1.6, span.0, span.1)
        } else {
            Axis::new(Scale::Linear, 0.0, high * 1.15, span.0, span.1)
        }
    }

    fn draw_axes(&self, svg: &mut Svg, palette: &Palette, x: &Axis, y: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in y.ticks() {
            let at = y.at(tick);
            svg.line((LEFT, at), (right, at), Stroke::solid(palette.grid, 1.0));
            let style = TextStyle::plain(12.0, palette.muted).anchored(Anchor::End);
            svg.text((LEFT - 8.0, at + 4.0), style, false, &label(tick));
        }
        svg.line((LEFT, bottom), (right, bottom), Stroke::solid(palette.ink, 1.0));
        let mut free_from = 0.0;
        for value in self.xs() {
            let at = x.at(value);
            svg.line((at, bottom), (at, bottom + 4.0), Stroke::solid(palette.ink, 1.0));
            let text = (self.x_label)(value);
            let half = width_of(&text, 12.0) / 2.0;
            if at - half >= free_from {
                let style = TextStyle::plain(12.0, palette.muted).anchored(Anchor::Middle);
                svg.text((at, bottom + 19.0), style, false, &text);
                free_from = at + half + 7.0;
            }
        }
        let style = TextStyle::plain(12.0, palette.ink).anchored(Anchor::Middle);
        svg.text(((LEFT + right) / 2.0, HEIGHT - 12.0), style, false, &self.x_name);
        svg.text((18.0, (TOP + bottom) / 2.0), style, true, "GB/s");
    }

    fn draw_curves(&self, svg: &mut Svg, palette: &Palette, x: &Axis, y: &Axis) {
        for curve in &self.curves {
            let colour = self.colour(palette, &curve.name);
            let pixels: Vec<(f64, f64)> =
                curve.points.iter().map(|(a, b)| (x.at(*a), y.at(*b))).collect();
            svg.polyline(&pixels, Stroke::solid(colour, 2.0));
            for ((a, b), half) in curve.points.iter().zip(&curve.half_widths) {
                // A logarithmic axis has no place for an interval that reaches 0.
                let ends = ((b - half).max(b / 10.0), b + half);
                svg.line(
                    (x.at(*a), y.at(ends.0)),
                    (x.at(*a), y.at(ends.1)),
                    Stroke::solid(colour, 1.0),
                );
            }
            for (pixel, (a, b)) in pixels.iter().zip(&curve.points) {
                let tip = format!(
                    "{} {}: simulated {} {} GB/s",
                    (self.x_label)(*a),
                    self.x_name,
                    curve.name,
                    number(*b)
                );
                svg.disc(*pixel, 3.5, colour, Stroke::solid(palette.surface, 1.0), &tip);
            }
        }
        let ends: Vec<(usize, f64)> = self
            .curves
            .iter()
            .enumerate()
            .filter_map(|(i, c)| c.points.last().map(|p| (i, y.at(p.1))))
            .collect();
        for (i, at) in spread(&ends, 31.0) {
            let curve = &self.curves[i];
            let Some((_, last)) = curve.points.last() else {
                continue;
            };
            let style = TextStyle::plain(12.0, self.colour(palette, &curve.name)).bold();
            let left = WIDTH - RIGHT + 8.0;
            svg.text((left, at), style, false, &format!("simulated {}", curve.name));
            let style = TextStyle { bold: false, ..style };
            svg.text((left, at + 15.0), style, false, &format!("{} GB/s", number(*last)));
        }
    }
}

/// Moves labels apart until neighbours are at least `gap` pixels from each other.
pub fn spread(ends: &[(usize, f64)], gap: f64) -> Vec<(usize, f64)> {
    let mut placed = ends.to_vec();
    placed.sort_by(|a, b| a.1.total_cmp(&b.1));
    for _ in 0..100 {
        let mut moved = false;
        for i in 1..placed.len() {
            let overlap = gap - (placed[i].1 - placed[i - 1].1);
            if overlap > 1e-6 {
                placed[i - 1].1 -= overlap / 2.0;
                placed[i].1 += overlap / 2.0;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::palette::PAPER;

    #[test]
    fn overlapping_labels_are_moved_apart() {
        let placed = spread(&[(0, 10.0), (1, 12.0), (2, 11.0)], 14.0);
        assert!(placed.windows(2).all(|w| w[1].1 - w[0].1 >= 13.9), "{placed:?}");
    }

    #[test]
    fn published_marks_outside_the_study_are_omitted() {
        let figure = Figure {
            title: "t".into(),
            subtitle: "s".into(),
            x_name: "nodes".into(),
            x_label: label,
            curves: vec![Curve {
                name: "write".into(),
                points: vec![(1.0, 2.0), (64.0, 128.0)],
                half_widths: vec![],
            }],
            marks: vec![
                Mark {
                    name: "write".into(),
                    span: (1024.0, 8192.0),
                    value: 1200.0,
                    per_x: false,
                    tip: "cap".into(),
                },
                Mark {
                    name: "write".into(),
                    span: (1.0, 256.0),
                    value: 2.0,
                    per_x: true,
                    tip: "each".into(),
                },
            ],
            limits: vec![(1.0, "client".into()), (64.0, "client".into())],
        };
        let svg = figure.draw(&PAPER).document(PAPER.surface);
        assert!(!svg.contains("published 1,200"));
        assert!(svg.contains("published 2.00 GB/s a node"));
        assert_eq!(svg.matches(">client<").count(), 1);
    }
}
