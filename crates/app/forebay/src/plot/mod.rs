//! Figures: drawn once as SVG, and from that as PNG. Needs no fonts on the machine.

mod annotations;
pub mod axis;
pub mod bandwidth;
pub mod bars;
pub mod heat;
pub mod lines;
pub mod palette;
pub mod png;
pub mod svg;
