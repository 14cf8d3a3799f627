//! Horizontal bars with labels and values.

use super::palette::Palette;
use super::svg::{Anchor, Svg, TextStyle, width_of};

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Label.
    pub name: String,
    /// Length, in the same unit for all bars of the chart.
    pub value: f64,
    /// The value as text.
    pub text: String,
    /// Index of its colour.
    pub series: usize,
}

/// Draws bars under a heading, `width` pixels wide.
pub fn draw(title: &str, bars: &[Bar], width: f64, palette: &Palette) -> Svg {
    const ROW: f64 = 24.0;
    let height = 34.0 + ROW * bars.len() as f64;
    let mut svg = Svg::new(width, height, title);
    svg.text((16.0, 18.0), TextStyle::plain(12.0, palette.ink).bold(), false, title);
    let label = bars.iter().map(|b| width_of(&b.name, 12.0)).fold(0.0, f64::max) + 24.0;
    let after = bars.iter().map(|b| width_of(&b.text, 12.0)).fold(0.0, f64::max) + 16.0;
    let room = (width - label - after).max(20.0);
    let longest = bars.iter().map(|b| b.value).filter(|v| v.is_finite()).fold(0.0, f64::max);
    for (i, bar) in bars.iter().enumerate() {
        let y = 30.0 + ROW * i as f64;
        let length =
            if longest > 0.0 && bar.value.is_finite() { bar.value / longest * room } else { 0.0 };
        let style = TextStyle::plain(12.0, palette.ink).anchored(Anchor::End);
        svg.text((label - 8.0, y + 13.0), style, false, &bar.name);
        let tip = format!("{}: {}", bar.name, bar.text);
        svg.rect(label, y + 2.0, length, ROW - 8.0, palette.series(bar.series), Some(&tip));
        let style = TextStyle::plain(12.0, palette.muted);
        svg.text((label + length + 6.0, y + 13.0), style, false, &bar.text);
    }
    svg
}
