//! SVG drawings; all text is escaped.

use std::fmt::Write;

/// Font families; the first is embedded for PNG.
pub const FONT: &str = "Noto Sans, Helvetica, Arial, sans-serif";

/// The anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Begins at the point.
    Start,
    /// Is centred on the point.
    Middle,
    /// Ends at the point.
    End,
}

/// The style of a text.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Height in pixels.
    pub size: f64,
    /// Colour.
    pub fill: &'static str,
    /// Bold.
    pub bold: bool,
    /// Anchor.
    pub anchor: Anchor,
}

impl TextStyle {
    /// Plain text that begins at its point.
    pub fn plain(size: f64, fill: &'static str) -> TextStyle {
        TextStyle { size, fill, bold: false, anchor: Anchor::Start }
    }

    /// The same, bold.
    pub fn bold(self) -> TextStyle {
        TextStyle { bold: true, ..self }
    }

    /// The same with another anchor.
    pub fn anchored(self, anchor: Anchor) -> TextStyle {
        TextStyle { anchor, ..self }
    }
}

/// A line's colour, width and dashes.
#[derive(Clone, Copy, Debug)]
pub struct Stroke {
    /// Colour.
    pub colour: &'static str,
    /// Width in pixels.
    pub width: f64,
    /// Dash pattern, empty for a solid line.
    pub dashes: &'static str,
}

impl Stroke {
    /// A solid line.
    pub fn solid(colour: &'static str, width: f64) -> Stroke {
        Stroke { colour, width, dashes: "" }
    }

    /// A dashed line.
    pub fn dashed(colour: &'static str, width: f64) -> Stroke {
        Stroke { colour, width, dashes: "4 3" }
    }

    fn attributes(&self) -> String {
        let mut out = format!("stroke=\"{}\" stroke-width=\"{}\"", self.colour, number(self.width));
        if !self.dashes.is_empty() {
            let _ = write!(out, " stroke-dasharray=\"{}\"", self.dashes);
        }
        out
    }
}

/// A drawing under construction.
#[derive(Clone, Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

/// A coordinate with at most two decimals; anything that is not a number becomes 0.
pub fn number(x: f64) -> String {
    if !x.is_finite() {
        return "0".to_string();
    }
    let rounded = (x * 100.0).round() / 100.0;
    format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
}

/// Text with the special characters of XML and HTML replaced.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML cannot represent the other control characters.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

impl Svg {
    /// An empty drawing of this size in pixels; `title` is its description for screen readers.
    pub fn new(width: f64, height: f64, title: &str) -> Svg {
        Svg { width, height, title: title.to_string(), body: String::new() }
    }

    fn push(&mut self, element: &str, tip: Option<&str>) {
        let close = element.split([' ', '>']).next().unwrap_or("<g").trim_start_matches('<');
        match tip {
            Some(tip) => {
                let _ = writeln!(self.body, "{element}><title>{}</title></{close}>", escape(tip));
            }
            None => {
                let _ = writeln!(self.body, "{element}/>");
            }
        }
    }

    /// A filled rectangle with an optional tooltip.
    pub fn rect(&mut self, x: f64, y: f64, w: f64, h: f64, fill: &str, tip: Option<&str>) {
        let element = format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"",
            number(x),
            number(y),
            number(w.max(0.0)),
            number(h.max(0.0))
        );
        self.push(&element, tip);
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        let element = format!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}",
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1),
            stroke.attributes()
        );
        self.push(&element, None);
    }

    /// A broad translucent line, as the background of another one.
    pub fn halo(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let element = format!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\" \
             stroke-width=\"9\" stroke-opacity=\"0.25\"",
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1)
        );
        self.push(&element, None);
    }

    /// A line through points.
    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let list: Vec<String> =
            points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
        let element = format!(
            "<polyline points=\"{}\" fill=\"none\" stroke-linejoin=\"round\" {}",
            list.join(" "),
            stroke.attributes()
        );
        self.push(&element, None);
    }

    /// A filled disc with an outline.
    pub fn disc(&mut self, at: (f64, f64), radius: f64, fill: &str, stroke: Stroke, tip: &str) {
        let element = format!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{fill}\" {}",
            number(at.0),
            number(at.1),
            number(radius),
            stroke.attributes()
        );
        self.push(&element, Some(tip));
    }

    /// A diamond with an outline.
    pub fn diamond(&mut self, at: (f64, f64), radius: f64, fill: &str, stroke: Stroke, tip: &str) {
        let (x, y) = at;
        let element = format!(
            "<path d=\"M{} {}L{} {}L{} {}L{} {}Z\" fill=\"{fill}\" {}",
            number(x),
            number(y - radius),
            number(x + radius),
            number(y),
            number(x),
            number(y + radius),
            number(x - radius),
            number(y),
            stroke.attributes()
        );
        self.push(&element, Some(tip));
    }

    /// A filled path in SVG path syntax.
    pub fn path(&mut self, d: &str, fill: &str) {
        self.push(&format!("<path d=\"{d}\" fill=\"{fill}\""), None);
    }

    /// A line of text; `turned` rotates it by 90 degrees.
    pub fn text(&mut self, at: (f64, f64), style: TextStyle, turned: bool, text: &str) {
        let anchor = match style.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if style.bold { " font-weight=\"700\"" } else { "" };
        let (x, y) = (number(at.0), number(at.1));
        let turn =
            if turned { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" fill=\"{}\"{anchor}{weight}{turn}>{}</text>",
            number(style.size),
            style.fill,
            escape(text)
        );
    }

    /// Appends another drawing below this one.
    pub fn below(&mut self, other: &Svg) {
        let _ = writeln!(
            self.body,
            "<g transform=\"translate(0 {})\">\n{}</g>",
            number(self.height),
            other.body
        );
        self.height += other.height;
        self.width = self.width.max(other.width);
    }

    fn wrap(&self, opening: &str, background: &str) -> String {
        format!(
            "{opening} viewBox=\"0 0 {} {}\" font-family=\"{FONT}\" role=\"img\">\n\
             <title>{}</title>\n{background}{}</svg>\n",
            number(self.width),
            number(self.height),
            escape(&self.title),
            self.body
        )
    }

    /// The drawing as a standalone file.
    pub fn document(&self, surface: &str) -> String {
        let (w, h) = (number(self.width), number(self.height));
        self.wrap(
            &format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\""),
            &format!("<rect width=\"{w}\" height=\"{h}\" fill=\"{surface}\"/>\n"),
        )
    }

    /// The drawing as an element of an HTML page, at most as wide as it was drawn.
    pub fn element(&self, class: &str) -> String {
        self.wrap(
            &format!("<svg class=\"{class}\" style=\"max-width:{}px\"", number(self.width)),
            "",
        )
    }
}

/// A text shortened, with an ellipsis, to about `width` pixels.
pub fn fitted(text: &str, size: f64, width: f64) -> String {
    if width_of(text, size) <= width {
        return text.to_string();
    }
    let mut short = text.to_string();
    while !short.is_empty() && width_of(&short, size) > width - size {
        short.pop();
    }
    short.trim_end().to_string() + "…"
}

/// Approximate width of a text in Noto Sans, in pixels.
pub fn width_of(text: &str, size: f64) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | '\'' | '|' | ' ' | ':' | 't' | 'f' | '-' => 0.32,
            'm' | 'w' | 'M' | 'W' | '%' => 0.87,
            c if c.is_ascii_uppercase() => 0.66,
            _ => 0.57,
        })
        .sum::<f64>()
        * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped() {
        let mut svg = Svg::new(10.0, 10.0, "</title><script>");
        svg.text((1.0, 2.0), TextStyle::plain(10.0, "#000"), false, "<&\"'\u{1}>");
        svg.rect(0.0, f64::NAN, 1.0, -1.0, "#000", Some("</rect>"));
        let document = svg.document("#fff");
        assert!(!document.contains("<script"));
        assert!(document.contains("&lt;&amp;&quot;&#39;\u{fffd}&gt;"));
        assert!(document.contains("y=\"0\" width=\"1\" height=\"0\""));
        assert!(document.contains("<title>&lt;/rect&gt;</title></rect>"));
        assert!(resvg::usvg::Tree::from_str(&document, &resvg::usvg::Options::default()).is_ok());
    }
}
