//! Conversion of SVG to PNG with embedded fonts.

use forebay_console::Failure;
use resvg::{tiny_skia, usvg};
use std::sync::Arc;

/// Pixels of the PNG per pixel of the SVG.
const SCALE: f32 = 2.0;

/// Renders a figure.
pub fn render(svg: &str) -> Result<Vec<u8>, Failure> {
    let failed = |what: String| Failure::Failed(format!("cannot draw the PNG: {what}"));
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(notosans::REGULAR_TTF.to_vec());
    fonts.load_font_data(notosans::BOLD_TTF.to_vec());
    fonts.set_sans_serif_family("Noto Sans");
    let options = usvg::Options {
        fontdb: Arc::new(fonts),
        font_family: "Noto Sans".to_string(),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|e| failed(e.to_string()))?;
    let size = tree.size();
    let (width, height) = (size.width() * SCALE, size.height() * SCALE);
    let mut pixels = tiny_skia::Pixmap::new(width.ceil() as u32, height.ceil() as u32)
        .ok_or_else(|| failed(format!("{width} x {height} pixels are too many")))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::svg::{Svg, TextStyle};

    fn dark_pixels(png: &[u8]) -> usize {
        let pixels = tiny_skia::Pixmap::decode_png(png).unwrap();
        pixels.pixels().iter().filter(|p| p.red() < 100).count()
    }

    #[test]
    fn text_is_rendered_with_the_embedded_fonts() {
        let mut svg = Svg::new(200.0, 40.0, "t");
        let empty = render(&svg.document("#ffffff")).unwrap();
        svg.text((10.0, 30.0), TextStyle::plain(20.0, "#000000"), false, "1,200 GB/s");
        let png = render(&svg.document("#ffffff")).unwrap();
        assert_eq!(dark_pixels(&empty), 0);
        assert!(dark_pixels(&png) > 300, "{}", dark_pixels(&png));
    }
}
