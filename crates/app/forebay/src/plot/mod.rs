//! Figures as SVG and PNG, with embedded fonts.

mod annotations;
pub mod axis;
pub mod bandwidth;
pub mod bars;
pub mod heat;
pub mod lines;
pub mod palette;
pub mod png;
pub mod svg;
