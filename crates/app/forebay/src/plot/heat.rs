//! Traffic from group to group as a map of squares.

use super::palette::Palette;
use super::svg::{Anchor, Svg, TextStyle};
use forebay_units::human::bytes;
use std::fmt::Write;

const LEFT: f64 = 54.0;
const TOP: f64 = 34.0;

/// The map and where its squares are, for a script that shows the square under the pointer.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// The drawing.
    pub svg: Svg,
    /// Pixels from the drawing's left and top edge to the first square.
    pub origin: (f64, f64),
    /// Side of a square in pixels.
    pub cell: f64,
}

/// Draws `heat[from][to]` in bytes. The squares off the diagonal share one scale; those on it
/// (traffic inside a group, counted on each of its local links) have a grey one of their own.
pub fn draw(title: &str, heat: &[Vec<u64>], palette: &Palette) -> HeatMap {
    let groups = heat.len();
    let cell = (480.0 / groups.max(1) as f64).clamp(4.0, 36.0);
    let side = cell * groups as f64;
    let width = (LEFT + side + 150.0).max(420.0);
    let mut svg = Svg::new(width, (TOP + side + 40.0).max(330.0), title);
    svg.text(
        (12.0, 16.0),
        TextStyle::plain(12.0, palette.ink).bold(),
        false,
        title,
    );
    svg.rect(LEFT, TOP, side, side, palette.grid, None);
    let most = |diagonal: bool| {
        let cells = heat.iter().enumerate().flat_map(|(i, row)| {
            row.iter()
                .enumerate()
                .filter(move |(j, _)| (i == *j) == diagonal)
                .map(|(_, v)| *v)
        });
        cells.max().unwrap_or(0)
    };
    let (between, inside) = (most(false), most(true));
    for (diagonal, most, colours) in [
        (false, between, &palette.heat),
        (true, inside, &palette.grey),
    ] {
        for (bin, colour) in colours.iter().enumerate() {
            let mut d = String::new();
            for (i, row) in heat.iter().enumerate() {
                for (j, value) in row.iter().enumerate() {
                    if (i == j) == diagonal && bin_of(*value, most, colours.len()) == Some(bin) {
                        let x = super::svg::number(LEFT + j as f64 * cell);
                        let y = super::svg::number(TOP + i as f64 * cell);
                        let s = super::svg::number(cell);
                        let _ = write!(d, "M{x} {y}h{s}v{s}h-{s}z");
                    }
                }
            }
            if !d.is_empty() {
                svg.path(&d, colour);
            }
        }
    }
    let style = TextStyle::plain(11.0, palette.muted);
    let every = groups.div_ceil(10).max(1);
    for group in (0..groups).step_by(every) {
        let at = (group as f64 + 0.5) * cell;
        svg.text(
            (LEFT - 6.0, TOP + at + 4.0),
            style.anchored(Anchor::End),
            false,
            &group.to_string(),
        );
        svg.text(
            (LEFT + at, TOP + side + 14.0),
            style.anchored(Anchor::Middle),
            false,
            &group.to_string(),
        );
    }
    let ink = TextStyle::plain(11.0, palette.ink).anchored(Anchor::Middle);
    svg.text(
        (LEFT + side / 2.0, TOP + side + 30.0),
        ink,
        false,
        "to group",
    );
    svg.text((20.0, TOP + side / 2.0), ink, true, "from group");
    let legend = LEFT + side + 24.0;
    scale(
        &mut svg,
        palette,
        (legend, TOP),
        "between groups",
        between,
        &palette.heat,
    );
    scale(
        &mut svg,
        palette,
        (legend, TOP + 130.0),
        "inside a group",
        inside,
        &palette.grey,
    );
    HeatMap {
        svg,
        origin: (LEFT, TOP),
        cell,
    }
}

/// Which of `bins` equal steps up to `most` a value falls in; none if it is zero.
fn bin_of(value: u64, most: u64, bins: usize) -> Option<usize> {
    if value == 0 || most == 0 {
        return None;
    }
    let share = value as f64 / most as f64;
    Some(((share * bins as f64).ceil() as usize).clamp(1, bins) - 1)
}

fn scale(
    svg: &mut Svg,
    palette: &Palette,
    at: (f64, f64),
    name: &str,
    most: u64,
    colours: &[&str],
) {
    const STEP: f64 = 12.0;
    let (x, y) = at;
    svg.text(
        (x, y + 8.0),
        TextStyle::plain(11.0, palette.ink),
        false,
        name,
    );
    for (i, colour) in colours.iter().rev().enumerate() {
        svg.rect(x, y + 14.0 + STEP * i as f64, 14.0, STEP, colour, None);
    }
    let style = TextStyle::plain(11.0, palette.muted);
    svg.text((x + 20.0, y + 23.0), style, false, &bytes(most));
    svg.text(
        (x + 20.0, y + 14.0 + STEP * colours.len() as f64),
        style,
        false,
        "0 B",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::palette::PAPER;

    #[test]
    fn bins_cover_the_scale() {
        assert_eq!(bin_of(0, 100, 8), None);
        assert_eq!(bin_of(1, 100, 8), Some(0));
        assert_eq!(bin_of(100, 100, 8), Some(7));
        assert_eq!(bin_of(50, 100, 8), Some(3));
        assert_eq!(bin_of(5, 0, 8), None);
    }

    #[test]
    fn every_square_that_carried_something_is_drawn() {
        let groups = 57;
        let heat: Vec<Vec<u64>> = (0..groups)
            .map(|i| (0..groups).map(|j| (i * groups + j) as u64).collect())
            .collect();
        let map = draw("heat", &heat, &PAPER);
        let text = map.svg.element("heat");
        assert_eq!(text.matches("h-").count(), groups * groups - 1);
        assert!(map.cell >= 4.0);
        assert!(draw("none", &[], &PAPER).svg.element("x").contains("<svg"));
    }
}
