//! Text tables.

use std::fmt;

/// The side of a column to which its cells are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column: heading, minimum width, alignment.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// Minimum width in characters; the heading may widen it.
    pub width: usize,
    /// Alignment of heading and cells.
    pub align: Align,
}

impl Column {
    /// A column of numbers.
    pub const fn number(name: &'static str, width: usize) -> Column {
        Column { name, width, align: Align::Right }
    }

    /// A column of text.
    pub const fn text(name: &'static str, width: usize) -> Column {
        Column { name, width, align: Align::Left }
    }
}

/// A table; its `Display` makes every column as wide as its widest cell.
#[derive(Clone, Debug)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows; a row with fewer cells than columns leaves the last ones blank.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new() }
    }

    /// Appends a row.
    pub fn push(&mut self, cells: impl Into<Vec<String>>) {
        let mut cells = cells.into();
        debug_assert!(cells.len() <= self.columns.len());
        // A line end in a name would begin a row.
        for cell in cells.iter_mut().filter(|cell| cell.contains(['\n', '\t'])) {
            *cell = cell.replace('\n', "\\n").replace('\t', "\\t");
        }
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fitted = self.columns.clone();
        for row in &self.rows {
            for (column, cell) in fitted.iter_mut().zip(row) {
                column.width = column.width.max(cell.chars().count());
            }
        }
        writeln!(f, "{}", heading(&fitted))?;
        for row in &self.rows {
            writeln!(f, "{}", line(&fitted, row))?;
        }
        Ok(())
    }
}

/// One row of a table that is printed row by row, without trailing blanks. A cell wider than its
/// column moves the following ones to the right.
pub fn line(columns: &[Column], cells: &[String]) -> String {
    let mut out = String::new();
    for (i, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if i > 0 {
            out.push_str("  ");
        }
        let width = column.width.max(column.name.chars().count());
        match column.align {
            Align::Left => out.push_str(&format!("{cell:<width$}")),
            Align::Right => out.push_str(&format!("{cell:>width$}")),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The heading of a table that is printed row by row.
pub fn heading(columns: &[Column]) -> String {
    let names: Vec<String> = columns.iter().map(|c| c.name.to_owned()).collect();
    line(columns, &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_align_right_and_text_left() {
        let columns = [Column::number("nodes", 6), Column::text("limit", 8)];
        assert_eq!(heading(&columns), " nodes  limit");
        assert_eq!(line(&columns, &["8".into(), "client".into()]), "     8  client");
    }

    #[test]
    fn table_fits_its_widest_cells() {
        let mut table = Table::new([Column::text("id", 0), Column::number("x", 0)]);
        table.push(["long-name".into(), "1".into()]);
        table.push(["a".into(), "22".into()]);
        table.push(["b".into()]);
        assert_eq!(table.to_string(), "id          x\nlong-name   1\na          22\nb\n");
    }
}
