//! The validation table in Markdown, as in docs/accuracy.md.

use super::status::Status;
use super::verdict::Row;
use forebay_units::human::number;

/// The cells of a row that do not depend on the simulation: id, measured value, and what is
/// compared.
pub fn fixed_cells(row: &str, measured: Option<f64>, unit: &str, compared: &str) -> String {
    let measured = match measured {
        Some(value) => format!("{} {unit}", number(value)),
        None => String::from("–"),
    };
    format!("| {row} | {compared} | {measured} |")
}

/// All rows, in groups by status; in each group, those that miss their tolerance first.
pub fn tables(rows: &[Row]) -> String {
    let mut out = String::new();
    for status in Status::ALL {
        let mut group: Vec<&Row> = rows.iter().filter(|r| r.status == status.name()).collect();
        if group.is_empty() {
            continue;
        }
        group.sort_by_key(|row| row.met);
        let met = group.iter().filter(|r| r.met).count();
        let (heading, explanation) = status.heading();
        out.push_str(&format!(
            "**{heading}** ({met} of {} rows hold): {explanation}.\n\n\
             | row | compared | measured | simulated | error | accepted | limit | |\n\
             |---|---|---|---|---|---|---|---|\n",
            group.len()
        ));
        for row in group {
            out.push_str(&line(row));
        }
        out.push('\n');
    }
    out
}

/// Half the width of a value's interval; `<0.1%` if it is less than a thousandth of the value, which
/// may be a rounding error.
pub fn half_width(value: f64, half: f64) -> String {
    if half > 0.0 && half < 0.001 * value.abs() { "<0.1%".to_string() } else { number(half) }
}

fn line(row: &Row) -> String {
    let fixed = fixed_cells(&row.row, row.measured, &row.unit, &row.compared);
    let simulated = match (row.simulated, row.interval) {
        (Some(value), Some(half)) => format!("{} ± {}", number(value), half_width(value, half)),
        (Some(value), None) => number(value),
        (None, _) => String::from("–"),
    };
    let error = row.error_percent.map_or(String::from("–"), |e| format!("{e:+.1}%"));
    let verdict = if row.met { "holds" } else { "**misses**" };
    let limit = if row.limit.is_empty() { "–" } else { &row.limit };
    format!("{fixed} {simulated} | {error} | {} | {limit} | {verdict} |\n", row.tolerance)
}

#[cfg(test)]
mod tests {
    use super::half_width;

    #[test]
    fn interval_of_rounding_errors_has_no_digits() {
        assert_eq!(half_width(1.91, 6.76e-16), "<0.1%");
        assert_eq!(half_width(-2.0, 0.0019), "<0.1%");
        assert_eq!(half_width(2.0, 0.0021), "0.0021");
        assert_eq!(half_width(1.31, 0.0), "0.00");
        assert_eq!(half_width(0.0, 0.5), "0.50");
    }
}
