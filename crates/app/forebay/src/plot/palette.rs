//! Colours: the Okabe-Ito palette, which is safe for common kinds of colour blindness.

/// The colours of one figure. In a file they are fixed; on a page they are CSS variables, so
/// that the same figure follows the light and the dark theme.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    /// Background of the figure.
    pub surface: &'static str,
    /// Text and axes.
    pub ink: &'static str,
    /// Secondary text.
    pub muted: &'static str,
    /// Grid lines.
    pub grid: &'static str,
    /// Series, in the order of their use.
    pub series: [&'static str; 6],
    /// Sequential scale of a heat map, from low to high.
    pub heat: [&'static str; 8],
    /// Sequential scale of values that are not on the main scale.
    pub grey: [&'static str; 8],
}

/// Colours for figures in files.
pub const PAPER: Palette = Palette {
    surface: "#ffffff",
    ink: "#1b1b1b",
    muted: "#5c5c5c",
    grid: "#e4e4e4",
    series: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"],
    heat: ["#fff3d6", "#fddfa5", "#fbc26f", "#f59d4a", "#e2733c", "#c24a3b", "#95283f", "#5f1240"],
    grey: ["#f1f1f1", "#e0e0e0", "#cbcbcb", "#b3b3b3", "#989898", "#7b7b7b", "#5e5e5e", "#404040"],
};

/// Colours for figures inside the report; `style.css` gives the variables their values.
pub const PAGE: Palette = Palette {
    surface: "var(--surface)",
    ink: "var(--ink)",
    muted: "var(--muted)",
    grid: "var(--grid)",
    series: [
        "var(--series-1)",
        "var(--series-2)",
        "var(--series-3)",
        "var(--series-4)",
        "var(--series-5)",
        "var(--series-6)",
    ],
    heat: [
        "var(--heat-1)",
        "var(--heat-2)",
        "var(--heat-3)",
        "var(--heat-4)",
        "var(--heat-5)",
        "var(--heat-6)",
        "var(--heat-7)",
        "var(--heat-8)",
    ],
    grey: [
        "var(--grey-1)",
        "var(--grey-2)",
        "var(--grey-3)",
        "var(--grey-4)",
        "var(--grey-5)",
        "var(--grey-6)",
        "var(--grey-7)",
        "var(--grey-8)",
    ],
};

impl Palette {
    /// The colour of a series; colours repeat after the last.
    pub fn series(&self, number: usize) -> &'static str {
        self.series[number % self.series.len()]
    }
}
