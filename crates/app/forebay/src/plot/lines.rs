//! Line charts of values over time or node count.

use super::axis::{Axis, Scale, label};
use super::bandwidth::spread;
use super::palette::Palette;
use super::svg::{Anchor, Stroke, Svg, TextStyle, width_of};
use forebay_units::human::number;

const LEFT: f64 = 58.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Label at its end.
    pub name: String,
    /// (x, y), ascending in x.
    pub points: Vec<(f64, f64)>,
    /// Half widths of the points' confidence intervals; empty or 0 without.
    pub half_widths: Vec<f64>,
}

impl Line {
    /// The upper ends of the intervals.
    fn tops(&self) -> impl Iterator<Item = f64> {
        let half_widths = self.half_widths.iter().copied().chain(std::iter::repeat(0.0));
        self.points.iter().zip(half_widths).map(|(point, half)| point.1 + half)
    }
}

/// A small chart of lines.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Heading, with the unit of y.
    pub title: String,
    /// Name of the x axis, with its unit.
    pub x_name: String,
    /// Label of an x value.
    pub x_label: fn(f64) -> String,
    /// Scale of the x axis.
    pub x_scale: Scale,
    /// Whether ticks are at the points instead of at round values.
    pub x_at_points: bool,
    /// Minimum upper end of the y axis (1 for shares); the lower end is 0.
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
        let mut svg = Svg::new(width, height, &self.title);
        svg.text(
            (LEFT - 42.0, 16.0),
            TextStyle::plain(12.0, palette.ink).bold(),
            false,
            &self.title,
        );
        let (x, y) = self.axes();
        self.draw_axes(&mut svg, palette, &x, &y);
        let ends: Vec<(usize, f64)> = (self.lines.iter().enumerate())
            .filter_map(|(i, line)| {
                let pixels = self.draw_line(&mut svg, palette, i, line, (&x, &y));
                // A line over time often ends at zero with all others; its label is at the height
                // of its middle.
                let labelled =
                    if self.x_at_points { pixels.last() } else { pixels.get(pixels.len() / 2) };
                labelled.map(|at| (i, at.1 + 4.0))
            })
            .collect();
        for (i, at) in spread(&ends, 14.0) {
            let style = TextStyle::plain(11.0, palette.series(i));
            let name = &self.lines[i].name;
            svg.text((width - RIGHT + 8.0, at), style, false, name);
        }
        svg
    }

    fn axes(&self) -> (Axis, Axis) {
        let (width, height) = self.size;
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let low = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let high = points().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        let from = match self.x_scale {
            Scale::Linear => low.min(0.0),
            Scale::Log => low,
        };
        let tops = self.lines.iter().flat_map(Line::tops);
        let top = tops.filter(|v| v.is_finite()).fold(self.y_top, f64::max);
        (
            Axis::new(self.x_scale, from, high, LEFT, width - RIGHT),
            Axis::new(Scale::Linear, 0.0, top * 1.04, height - BOTTOM, TOP),
        )
    }

    fn draw_axes(&self, svg: &mut Svg, palette: &Palette, x: &Axis, y: &Axis) {
        let (width, height) = self.size;
        let (right, bottom) = (width - RIGHT, height - BOTTOM);
        for tick in y.ticks() {
            let at = y.at(tick);
            svg.line((LEFT, at), (right, at), Stroke::solid(palette.grid, 1.0));
            let style = TextStyle::plain(11.0, palette.muted).anchored(Anchor::End);
            svg.text((LEFT - 6.0, at + 4.0), style, false, &label(tick));
        }
        let stroke = Stroke::solid(palette.ink, 1.0);
        svg.line((LEFT, bottom), (right, bottom), stroke);
        self.draw_x_ticks(svg, palette, x, bottom);
        let style = TextStyle::plain(11.0, palette.muted).anchored(Anchor::Middle);
        let centre = ((LEFT + right) / 2.0, height - 8.0);
        svg.text(centre, style, false, &self.x_name);
    }

    /// Draws a line, with marks if it has few points, and returns its pixels.
    fn draw_line(
        &self,
        svg: &mut Svg,
        palette: &Palette,
        series: usize,
        line: &Line,
        (x, y): (&Axis, &Axis),
    ) -> Vec<(f64, f64)> {
        const MAX_MARKS: usize = 40;
        let colour = palette.series(series);
        let points = line.points.iter();
        let pixels: Vec<(f64, f64)> = points.map(|p| (x.at(p.0), y.at(p.1))).collect();
        svg.polyline(&pixels, Stroke::solid(colour, 1.6));
        for (point, half) in line.points.iter().zip(&line.half_widths).filter(|(_, h)| **h > 0.0) {
            let at = x.at(point.0);
            let ends = ((at, y.at((point.1 - half).max(0.0))), (at, y.at(point.1 + half)));
            svg.line(ends.0, ends.1, Stroke::solid(colour, 1.0));
        }
        if pixels.len() <= MAX_MARKS {
            for (pixel, (a, b)) in pixels.iter().zip(&line.points) {
                let at = (self.x_label)(*a);
                let tip = format!("{} at {at}: {}", line.name, number(*b));
                let outline = Stroke::solid(palette.surface, 0.5);
                svg.disc(*pixel, 2.5, colour, outline, &tip);
            }
        }
        pixels
    }

    fn draw_x_ticks(&self, svg: &mut Svg, palette: &Palette, x: &Axis, bottom: f64) {
        let ticks = if self.x_at_points {
            let mut xs: Vec<f64> =
                self.lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).collect();
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
            svg.line((at, bottom), (at, bottom + 4.0), Stroke::solid(palette.ink, 1.0));
            if at - half >= free_from {
                let style = TextStyle::plain(11.0, palette.muted).anchored(Anchor::Middle);
                svg.text((at, bottom + 17.0), style, false, &text);
                free_from = at + half + 6.0;
            }
        }
    }
}
