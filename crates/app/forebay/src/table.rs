//! Text tables with fixed columns, so that rows can be printed as they come.

/// Which side a column's values lean on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// One column: heading, least width, alignment.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// Least width in characters; the heading may widen it.
    pub width: usize,
    /// Alignment of heading and values.
    pub align: Align,
}

impl Column {
    /// A column of numbers.
    pub const fn number(name: &'static str, width: usize) -> Column {
        Column {
            name,
            width,
            align: Align::Right,
        }
    }

    /// A column of text.
    pub const fn text(name: &'static str, width: usize) -> Column {
        Column {
            name,
            width,
            align: Align::Left,
        }
    }
}

/// One line of a table; cells wider than their column push the rest to the right. The line
/// carries no blanks at its end.
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

/// The heading line.
pub fn heading(columns: &[Column]) -> String {
    let names: Vec<String> = columns.iter().map(|c| c.name.to_string()).collect();
    line(columns, &names)
}

/// A whole table with columns as wide as their widest cell.
pub fn whole(columns: &[Column], rows: &[Vec<String>]) -> String {
    let mut fitted = columns.to_vec();
    for row in rows {
        for (column, cell) in fitted.iter_mut().zip(row) {
            column.width = column.width.max(cell.chars().count());
        }
    }
    let mut out = heading(&fitted);
    for row in rows {
        out.push('\n');
        out.push_str(&line(&fitted, row));
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lean_right_and_text_left() {
        let columns = [Column::number("nodes", 6), Column::text("limit", 8)];
        assert_eq!(heading(&columns), " nodes  limit");
        assert_eq!(
            line(&columns, &["8".into(), "client".into()]),
            "     8  client"
        );
    }

    #[test]
    fn a_whole_table_fits_its_widest_cell() {
        let columns = [Column::text("id", 0), Column::number("x", 0)];
        let text = whole(
            &columns,
            &[
                vec!["long-name".into(), "1".into()],
                vec!["a".into(), "22".into()],
            ],
        );
        assert_eq!(text, "id          x\nlong-name   1\na          22\n");
    }
}
