//! Rates against node count (or streams, or transfer size), beside published figures, with the
//! limiting resource above.

use super::axis::{Axis, Scale, label};
use super::palette::Palette;
use super::svg::{Anchor, Stroke, Svg, TextStyle, width_of};
use crate::quantity::significant;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 128.0;
const TOP: f64 = 88.0;
const BOTTOM: f64 = 54.0;

/// One simulated curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// `write` or `read`; curves and published marks of one name share a colour.
    pub name: String,
    /// (x, GB/s), ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// One published figure.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The curve it is to be compared with.
    pub name: String,
    /// Range of x it was stated for; equal ends for a single point.
    pub span: (f64, f64),
    /// GB/s; a `per_x` value is multiplied by x.
    pub value: f64,
    /// The value is for one node, so that the figure is a rising line.
    pub per_x: bool,
    /// The sentence shown when one points at it.
    pub tip: String,
}

/// A figure of rates.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Heading.
    pub title: String,
    /// Second line: the conditions.
    pub subtitle: String,
    /// What x counts.
    pub x_name: String,
    /// Label of an x value.
    pub x_label: fn(f64) -> String,
    /// Simulated curves.
    pub curves: Vec<Curve>,
    /// Published figures.
    pub marks: Vec<Mark>,
    /// Limiting resource by x, ascending in x.
    pub limits: Vec<(f64, String)>,
}

impl Figure {
    /// Draws the figure.
    pub fn draw(&self, palette: &Palette) -> Svg {
        let mut svg = Svg::new(WIDTH, HEIGHT, &self.title);
        let x = self.x_axis();
        let y = self.y_axis(&x);
        svg.text(
            (16.0, 26.0),
            TextStyle::plain(16.0, palette.ink).bold(),
            false,
            &self.title,
        );
        svg.text(
            (16.0, 45.0),
            TextStyle::plain(12.0, palette.muted),
            false,
            &self.subtitle,
        );
        self.draw_axes(&mut svg, palette, &x, &y);
        self.draw_limits(&mut svg, palette, &x);
        for mark in &self.marks {
            self.draw_mark(&mut svg, palette, &x, &y, mark);
        }
        self.draw_curves(&mut svg, palette, &x, &y);
        svg
    }

    fn colour(&self, palette: &Palette, name: &str) -> &'static str {
        match name {
            "write" => palette.series(0),
            "read" => palette.series(1),
            other => {
                let index = self
                    .curves
                    .iter()
                    .position(|c| c.name == other)
                    .unwrap_or(0);
                palette.series(index + 2)
            }
        }
    }

    fn xs(&self) -> Vec<f64> {
        let mut xs: Vec<f64> = self
            .curves
            .iter()
            .flat_map(|c| c.points.iter().map(|p| p.0))
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    fn x_axis(&self) -> Axis {
        let xs = self.xs();
        let (low, high) = (
            xs.first().copied().unwrap_or(1.0),
            xs.last().copied().unwrap_or(1.0),
        );
        // Half a doubling of air on both sides keeps the marks off the frame.
        Axis::new(Scale::Log, low / 1.3, high * 1.3, LEFT, WIDTH - RIGHT)
    }

    fn y_axis(&self, x: &Axis) -> Axis {
        let simulated = self
            .curves
            .iter()
            .flat_map(|c| c.points.iter().map(|p| p.1));
        let published = self
            .marks
            .iter()
            .filter_map(|m| self.clip(x, m))
            .flat_map(|(a, b)| [a.1, b.1]);
        let all: Vec<f64> = simulated
            .chain(published)
            .filter(|v| v.is_finite() && *v > 0.0)
            .collect();
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
        svg.line(
            (LEFT, bottom),
            (right, bottom),
            Stroke::solid(palette.ink, 1.0),
        );
        let mut free_from = 0.0;
        for value in self.xs() {
            let at = x.at(value);
            svg.line(
                (at, bottom),
                (at, bottom + 4.0),
                Stroke::solid(palette.ink, 1.0),
            );
            let text = (self.x_label)(value);
            let half = width_of(&text, 12.0) / 2.0;
            if at - half >= free_from {
                let style = TextStyle::plain(12.0, palette.muted).anchored(Anchor::Middle);
                svg.text((at, bottom + 19.0), style, false, &text);
                free_from = at + half + 7.0;
            }
        }
        let style = TextStyle::plain(12.0, palette.ink).anchored(Anchor::Middle);
        svg.text(
            ((LEFT + right) / 2.0, HEIGHT - 12.0),
            style,
            false,
            &self.x_name,
        );
        svg.text((18.0, (TOP + bottom) / 2.0), style, true, "GB/s");
    }

    /// The strip above the plot: which resource was the limit from where to where.
    fn draw_limits(&self, svg: &mut Svg, palette: &Palette, x: &Axis) {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (i, (_, name)) in self.limits.iter().enumerate() {
            match runs.last_mut() {
                Some((first, last)) if self.limits[*first].1 == *name => *last = i,
                _ => runs.push((i, i)),
            }
        }
        if runs.is_empty() {
            return;
        }
        let style = TextStyle::plain(11.0, palette.muted);
        svg.text(
            (WIDTH - RIGHT + 8.0, TOP - 12.0),
            style,
            false,
            "limited by",
        );
        let middle = |a: usize, b: usize| (x.at(self.limits[a].0) + x.at(self.limits[b].0)) / 2.0;
        for (number, (first, last)) in runs.iter().enumerate() {
            let begin = if number == 0 {
                left
            } else {
                middle(*first - 1, *first)
            };
            let end = if number + 1 == runs.len() {
                right
            } else {
                middle(*last, *last + 1)
            };
            let name = &self.limits[*first].1;
            let range = if first == last {
                (self.x_label)(self.limits[*first].0)
            } else {
                let (a, b) = (self.limits[*first].0, self.limits[*last].0);
                format!("{} to {}", (self.x_label)(a), (self.x_label)(b))
            };
            let tip = format!("{range} {}: limited by the {name}", self.x_name);
            let fill = palette.grey[number % 2];
            svg.rect(
                begin + 1.0,
                TOP - 26.0,
                end - begin - 2.0,
                20.0,
                fill,
                Some(&tip),
            );
            if number > 0 {
                let bottom = HEIGHT - BOTTOM;
                svg.line(
                    (begin, TOP - 6.0),
                    (begin, bottom),
                    Stroke::dashed(palette.grid, 1.0),
                );
            }
            let text = [name.as_str(), name.split('-').next().unwrap_or(name)]
                .into_iter()
                .find(|t| width_of(t, 11.0) + 6.0 <= end - begin);
            if let Some(text) = text {
                let style = TextStyle::plain(11.0, palette.ink).anchored(Anchor::Middle);
                svg.text(((begin + end) / 2.0, TOP - 12.0), style, false, text);
            }
        }
    }

    /// The part of a published figure that lies on the x axis: its two ends.
    fn clip(&self, x: &Axis, mark: &Mark) -> Option<((f64, f64), (f64, f64))> {
        let (low, high) = x.range();
        let (a, b) = (mark.span.0.max(low), mark.span.1.min(high));
        let at = |x: f64| {
            if mark.per_x {
                mark.value * x
            } else {
                mark.value
            }
        };
        (a <= b).then(|| ((a, at(a)), (b, at(b))))
    }

    fn draw_mark(&self, svg: &mut Svg, palette: &Palette, x: &Axis, y: &Axis, mark: &Mark) {
        let Some((a, b)) = self.clip(x, mark) else {
            return;
        };
        let colour = self.colour(palette, &mark.name);
        let (from, to) = ((x.at(a.0), y.at(a.1)), (x.at(b.0), y.at(b.1)));
        let single = mark.span.0 == mark.span.1;
        let stroke = Stroke::solid(colour, 1.5);
        if !single {
            svg.line(
                from,
                to,
                Stroke {
                    dashes: "6 4",
                    ..stroke
                },
            );
        }
        svg.diamond(from, 6.0, palette.surface, stroke, &mark.tip);
        if !single {
            svg.diamond(to, 6.0, palette.surface, stroke, &mark.tip);
        }
        let each = if mark.per_x { " a node" } else { "" };
        let text = format!("published {}{each}", significant(mark.value));
        let width = width_of(&text, 11.0);
        let style = TextStyle::plain(11.0, colour);
        // A rising line is labelled below its upper part, a level one above its middle.
        let at = if mark.per_x && !single {
            (
                ((from.0 + 2.0 * to.0) / 3.0 + 12.0).min(WIDTH - RIGHT - width),
                (from.1 + 2.0 * to.1) / 3.0 + 18.0,
            )
        } else {
            let centre = (from.0 + to.0) / 2.0 - width / 2.0;
            (
                centre.clamp(LEFT + 2.0, WIDTH - RIGHT - width),
                from.1.min(to.1) - 11.0,
            )
        };
        svg.text(at, style, false, &text);
    }

    fn draw_curves(&self, svg: &mut Svg, palette: &Palette, x: &Axis, y: &Axis) {
        for curve in &self.curves {
            let colour = self.colour(palette, &curve.name);
            let pixels: Vec<(f64, f64)> = curve
                .points
                .iter()
                .map(|(a, b)| (x.at(*a), y.at(*b)))
                .collect();
            svg.polyline(&pixels, Stroke::solid(colour, 2.0));
            for (pixel, (a, b)) in pixels.iter().zip(&curve.points) {
                let tip = format!(
                    "{} {}: simulated {} {} GB/s",
                    (self.x_label)(*a),
                    self.x_name,
                    curve.name,
                    significant(*b)
                );
                svg.disc(
                    *pixel,
                    3.5,
                    colour,
                    Stroke::solid(palette.surface, 1.0),
                    &tip,
                );
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
            svg.text(
                (left, at),
                style,
                false,
                &format!("simulated {}", curve.name),
            );
            let style = TextStyle {
                bold: false,
                ..style
            };
            svg.text(
                (left, at + 15.0),
                style,
                false,
                &format!("{} GB/s", significant(*last)),
            );
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
    fn labels_are_moved_apart() {
        let placed = spread(&[(0, 10.0), (1, 12.0), (2, 11.0)], 14.0);
        assert!(
            placed.windows(2).all(|w| w[1].1 - w[0].1 >= 13.9),
            "{placed:?}"
        );
    }

    #[test]
    fn published_figures_outside_the_study_are_left_out() {
        let figure = Figure {
            title: "t".into(),
            subtitle: "s".into(),
            x_name: "nodes".into(),
            x_label: label,
            curves: vec![Curve {
                name: "write".into(),
                points: vec![(1.0, 2.0), (64.0, 128.0)],
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
        assert!(svg.contains("published 2.00 a node"));
        assert_eq!(svg.matches(">client<").count(), 1);
    }
}
