//! Annotations of a figure: published measurements and the limiting resource.

use super::axis::Axis;
use super::bandwidth::{BOTTOM, Figure, HEIGHT, LEFT, Mark, RIGHT, TOP, WIDTH};
use super::palette::Palette;
use super::svg::{Anchor, Stroke, Svg, TextStyle, width_of};
use forebay_units::human::number;

/// A point in the units of the axes.
type Point = (f64, f64);

impl Figure {
    /// Draws the strip above the plot, which names the limiting resource of each range.
    pub(super) fn draw_limits(&self, svg: &mut Svg, palette: &Palette, x: &Axis) {
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
        svg.text((WIDTH - RIGHT + 8.0, TOP - 12.0), style, false, "limited by");
        let middle = |a: usize, b: usize| (x.at(self.limits[a].0) + x.at(self.limits[b].0)) / 2.0;
        for (number, (first, last)) in runs.iter().enumerate() {
            let begin = if number == 0 { left } else { middle(*first - 1, *first) };
            let end = if number + 1 == runs.len() { right } else { middle(*last, *last + 1) };
            let name = &self.limits[*first].1;
            let range = if first == last {
                (self.x_label)(self.limits[*first].0)
            } else {
                let (a, b) = (self.limits[*first].0, self.limits[*last].0);
                format!("{} to {}", (self.x_label)(a), (self.x_label)(b))
            };
            let tip = format!("{range} {}: limited by the {name}", self.x_name);
            let fill = palette.grey[number % 2];
            svg.rect(begin + 1.0, TOP - 26.0, end - begin - 2.0, 20.0, fill, Some(&tip));
            if number > 0 {
                let bottom = HEIGHT - BOTTOM;
                svg.line((begin, TOP - 6.0), (begin, bottom), Stroke::dashed(palette.grid, 1.0));
            }
            let text = [name.as_str(), name.split(' ').next().unwrap_or(name)]
                .into_iter()
                .find(|t| width_of(t, 11.0) + 6.0 <= end - begin);
            if let Some(text) = text {
                let style = TextStyle::plain(11.0, palette.ink).anchored(Anchor::Middle);
                svg.text(((begin + end) / 2.0, TOP - 12.0), style, false, text);
            }
        }
    }

    /// The ends of the part of a published mark that lies within the x axis.
    pub(super) fn clip(&self, x: &Axis, mark: &Mark) -> Option<(Point, Point)> {
        let (low, high) = x.range();
        let (a, b) = (mark.span.0.max(low), mark.span.1.min(high));
        let at = |x: f64| {
            if mark.per_x { mark.value * x } else { mark.value }
        };
        (a <= b).then(|| ((a, at(a)), (b, at(b))))
    }

    pub(super) fn draw_mark(
        &self,
        svg: &mut Svg,
        palette: &Palette,
        x: &Axis,
        y: &Axis,
        mark: &Mark,
    ) {
        let Some((a, b)) = self.clip(x, mark) else {
            return;
        };
        let colour = self.colour(palette, &mark.name);
        let (from, to) = ((x.at(a.0), y.at(a.1)), (x.at(b.0), y.at(b.1)));
        let single = a.0 == b.0;
        let stroke = Stroke::solid(colour, 1.5);
        svg.diamond(from, 6.5, "none", stroke, &mark.tip);
        if !single {
            svg.diamond(to, 6.5, "none", stroke, &mark.tip);
        }
        let each = if mark.per_x { " a node" } else { "" };
        let text = format!("published {} GB/s{each}", number(mark.value));
        let width = width_of(&text, 11.0);
        let share = if mark.per_x && !single { 0.6 } else { 0.5 };
        let centre = (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
        let fits = |left: f64| left.clamp(LEFT + 2.0, WIDTH - RIGHT - width - 2.0);
        let places = if mark.per_x && !single {
            [
                (fits(centre.0 + 14.0), centre.1 + 16.0),
                (fits(centre.0 - width - 14.0), centre.1 - 10.0),
            ]
        } else {
            let left = fits(centre.0 - width / 2.0);
            [(left, centre.1 - 13.0), (left, centre.1 + 22.0)]
        };
        let best = places
            .into_iter()
            .max_by(|a, b| self.room(x, y, *a, width).total_cmp(&self.room(x, y, *b, width)));
        if let Some(at) = best {
            svg.text(at, TextStyle::plain(11.0, colour), false, &text);
        }
    }

    /// Distance in pixels between a label and the nearest curve, at most 12.
    fn room(&self, x: &Axis, y: &Axis, at: (f64, f64), width: f64) -> f64 {
        let middle = at.1 - 4.0;
        let mut least: f64 = 12.0;
        for curve in &self.curves {
            for pair in curve.points.windows(2) {
                let (from, to) =
                    ((x.at(pair[0].0), y.at(pair[0].1)), (x.at(pair[1].0), y.at(pair[1].1)));
                for step in 0..=16 {
                    let share = f64::from(step) / 16.0;
                    let (px, py) =
                        (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
                    if px >= at.0 - 4.0 && px <= at.0 + width + 4.0 {
                        least = least.min((py - middle).abs());
                    }
                }
            }
        }
        least
    }
}
