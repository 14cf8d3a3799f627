//! CSV with a heading.

use forebay_console::Failure;
use serde::Serialize;

/// The rows as CSV; a row is a tuple with a field for each word of the heading.
pub fn to_csv<R: Serialize>(
    heading: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> Result<String, Failure> {
    let failed = |error: String| Failure::Failed(format!("cannot write CSV: {error}"));
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(heading).map_err(|error| failed(error.to_string()))?;
    for row in rows {
        writer.serialize(row).map_err(|error| failed(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}
