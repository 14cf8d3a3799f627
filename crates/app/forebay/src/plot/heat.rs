//! Heat map of the traffic from group to group.

use super::palette::Palette;
use super::svg::{Anchor, Svg, TextStyle, number};
use forebay_units::human::bytes;
use std::fmt::Write;

const LEFT: f64 = 54.0;
const TOP: f64 = 34.0;

/// A heat map and the position of its squares, for the script that shows the square under the
/// pointer.
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
/// (traffic inside a group, counted on each of its local links) have a separate grey one.
pub fn draw(title: &str, heat: &[Vec<u64>], palette: &Palette) -> HeatMap {
    let groups = heat.len();
    let cell = (480.0 / groups.max(1) as f64).clamp(4.0, 36.0);
    let side = cell * groups as f64;
    let width = (LEFT + side + 150.0).max(420.0);
    let mut svg = Svg::new(width, (TOP + side + 40.0).max(330.0), title);
    svg.text((12.0, 16.0), TextStyle::plain(12.0, palette.ink).bold(), false, title);
    svg.rect(LEFT, TOP, side, side, palette.grid, None);
    let legend = LEFT + side + 24.0;
    for (diagonal, colours, name, top) in [
        (false, &palette.heat, "between groups", TOP),
        (true, &palette.grey, "inside a group", TOP + 130.0),
    ] {
        let cells = cells(heat).filter(|(i, j, _)| (i == j) == diagonal);
        let most = cells.clone().map(|(_, _, value)| value).max().unwrap_or(0);
        draw_squares(&mut svg, cell, cells, most, colours);
        draw_scale(&mut svg, palette, (legend, top), name, most, colours);
    }
    draw_group_numbers(&mut svg, palette, groups, cell);
    HeatMap { svg, origin: (LEFT, TOP), cell }
}

/// Row, column and value of each square.
fn cells(heat: &[Vec<u64>]) -> impl Iterator<Item = (usize, usize, u64)> + Clone {
    heat.iter().enumerate().flat_map(|(i, row)| {
        let values = row.iter().enumerate();
        values.map(move |(j, value)| (i, j, *value))
    })
}

/// Draws the squares of one scale, as one path per colour.
fn draw_squares(
    svg: &mut Svg,
    cell: f64,
    cells: impl Iterator<Item = (usize, usize, u64)> + Clone,
    most: u64,
    colours: &[&str],
) {
    for (bin, colour) in colours.iter().enumerate() {
        let mut path = String::new();
        for (i, j, value) in cells.clone() {
            if bin_of(value, most, colours.len()) == Some(bin) {
                let x = number(LEFT + j as f64 * cell);
                let y = number(TOP + i as f64 * cell);
                let s = number(cell);
                let _ = write!(path, "M{x} {y}h{s}v{s}h-{s}z");
            }
        }
        if !path.is_empty() {
            svg.path(&path, colour);
        }
    }
}

/// Draws the names of both axes and about ten group numbers along each.
fn draw_group_numbers(svg: &mut Svg, palette: &Palette, groups: usize, cell: f64) {
    let side = cell * groups as f64;
    let style = TextStyle::plain(11.0, palette.muted);
    let step = groups.div_ceil(10).max(1);
    for group in (0..groups).step_by(step) {
        let at = (group as f64 + 0.5) * cell;
        let text = group.to_string();
        let row = (LEFT - 6.0, TOP + at + 4.0);
        svg.text(row, style.anchored(Anchor::End), false, &text);
        let column = (LEFT + at, TOP + side + 14.0);
        svg.text(column, style.anchored(Anchor::Middle), false, &text);
    }
    let ink = TextStyle::plain(11.0, palette.ink).anchored(Anchor::Middle);
    let below = (LEFT + side / 2.0, TOP + side + 30.0);
    svg.text(below, ink, false, "to group");
    svg.text((20.0, TOP + side / 2.0), ink, true, "from group");
}

/// The index of a value among `bins` equal steps up to `most`; `None` for zero.
fn bin_of(value: u64, most: u64, bins: usize) -> Option<usize> {
    if value == 0 || most == 0 {
        return None;
    }
    let share = value as f64 / most as f64;
    Some(((share * bins as f64).ceil() as usize).clamp(1, bins) - 1)
}

fn draw_scale(
    svg: &mut Svg,
    palette: &Palette,
    at: (f64, f64),
    name: &str,
    most: u64,
    colours: &[&str],
) {
    const STEP: f64 = 12.0;
    let (x, y) = at;
    svg.text((x, y + 8.0), TextStyle::plain(11.0, palette.ink), false, name);
    for (i, colour) in colours.iter().rev().enumerate() {
        svg.rect(x, y + 14.0 + STEP * i as f64, 14.0, STEP, colour, None);
    }
    let style = TextStyle::plain(11.0, palette.muted);
    svg.text((x + 20.0, y + 23.0), style, false, &bytes(most));
    svg.text((x + 20.0, y + 14.0 + STEP * colours.len() as f64), style, false, "0 B");
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
    fn every_nonzero_square_is_drawn() {
        let groups = 57;
        let heat: Vec<Vec<u64>> =
            (0..groups).map(|i| (0..groups).map(|j| (i * groups + j) as u64).collect()).collect();
        let map = draw("heat", &heat, &PAPER);
        let text = map.svg.element("heat");
        assert_eq!(text.matches("h-").count(), groups * groups - 1);
        assert!(map.cell >= 4.0);
        assert!(draw("none", &[], &PAPER).svg.element("x").contains("<svg"));
    }
}
