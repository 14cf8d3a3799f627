//! Values over time or node count: thin lines, each labelled at its right.

use super::axis::{Axis, Scale, label};
use super::bandwidth::spread;
use super::palette::Palette;
use super::svg::{Anchor, Stroke, Svg, TextStyle, width_of};

const LEFT: f64 = 58.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Label at its end.
    pub name: String,
    /// (x, y), ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// A small chart of lines.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Heading, with the unit of y.
    pub title: String,
    /// What x is, with its unit.
    pub x_name: String,
    /// Label of an x value.
    pub x_label: fn(f64) -> String,
    /// How x is laid out.
    pub x_scale: Scale,
    /// Ticks at the points themselves instead of at round numbers.
    pub x_at_points: bool,
    /// Least top of the y axis (1 for shares); it always starts at 0.
    pub y_top: f64,
    /// The lines, in colour order.
    pub lines: Vec<Line>,
    /// Size in pixels.
    pub size: (f64, f64),
}

impl Chart {
    /// Draws the chart.
    pub fn draw(&self, palette: &Palette) -> Svg {
        let (width, height) = self.size;
        let (right, bottom) = (width - RIGHT, height - BOTTOM);
        let mut svg = Svg::new(width, height, &self.title);
        svg.text(
            (LEFT - 42.0, 16.0),
            TextStyle::plain(12.0, palette.ink).bold(),
            false,
            &self.title,
        );
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let low = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let high = points().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        let from = if self.x_scale == Scale::Linear {
            low.min(0.0)
        } else {
            low
        };
        let x = Axis::new(self.x_scale, from, high, LEFT, right);
        let top = points()
            .map(|p| p.1)
            .filter(|v| v.is_finite())
            .fold(self.y_top, f64::max);
        let y = Axis::new(Scale::Linear, 0.0, top * 1.04, bottom, TOP);
        for tick in y.ticks() {
            let at = y.at(tick);
            svg.line((LEFT, at), (right, at), Stroke::solid(palette.grid, 1.0));
            let style = TextStyle::plain(11.0, palette.muted).anchored(Anchor::End);
            svg.text((LEFT - 6.0, at + 4.0), style, false, &label(tick));
        }
        svg.line(
            (LEFT, bottom),
            (right, bottom),
            Stroke::solid(palette.ink, 1.0),
        );
        self.draw_x_ticks(&mut svg, palette, &x, bottom);
        let style = TextStyle::plain(11.0, palette.muted).anchored(Anchor::Middle);
        svg.text(
            ((LEFT + right) / 2.0, height - 8.0),
            style,
            false,
            &self.x_name,
        );
        let mut ends = Vec::new();
        for (i, line) in self.lines.iter().enumerate() {
            let colour = palette.series(i);
            let pixels: Vec<(f64, f64)> =
                line.points.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
            svg.polyline(&pixels, Stroke::solid(colour, 1.6));
            if pixels.len() <= 40 {
                for (pixel, (a, b)) in pixels.iter().zip(&line.points) {
                    let tip = format!(
                        "{} at {}: {}",
                        line.name,
                        (self.x_label)(*a),
                        forebay_units::human::number(*b)
                    );
                    svg.disc(
                        *pixel,
                        2.5,
                        colour,
                        Stroke::solid(palette.surface, 0.5),
                        &tip,
                    );
                }
            }
            // A line over time often ends at zero with all others; its label then stands at the
            // height of its middle.
            let labelled = if self.x_at_points {
                pixels.last()
            } else {
                pixels.get(pixels.len() / 2)
            };
            if let Some(at) = labelled {
                ends.push((i, at.1 + 4.0));
            }
        }
        for (i, at) in spread(&ends, 14.0) {
            let style = TextStyle::plain(11.0, palette.series(i));
            svg.text((right + 8.0, at), style, false, &self.lines[i].name);
        }
        svg
    }

    fn draw_x_ticks(&self, svg: &mut Svg, palette: &Palette, x: &Axis, bottom: f64) {
        let ticks = if self.x_at_points {
            let mut xs: Vec<f64> = self
                .lines
                .iter()
                .flat_map(|l| l.points.iter().map(|p| p.0))
                .collect();
            xs.sort_by(f64::total_cmp);
            xs.dedup();
            xs
        } else {
            x.ticks()
        };
        let mut free_from = 0.0;
        for tick in ticks {
            let at = x.at(tick);
            let text = (self.x_label)(tick);
            let half = width_of(&text, 11.0) / 2.0;
            svg.line(
                (at, bottom),
                (at, bottom + 4.0),
                Stroke::solid(palette.ink, 1.0),
            );
            if at - half >= free_from {
                let style = TextStyle::plain(11.0, palette.muted).anchored(Anchor::Middle);
                svg.text((at, bottom + 17.0), style, false, &text);
                free_from = at + half + 6.0;
            }
        }
    }
}
