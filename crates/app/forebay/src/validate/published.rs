//! Published measurements: `validation/published.csv`, embedded.

use forebay_console::Failure;
use serde::Deserialize;

/// The table.
const TABLE: &str = include_str!("../../../../../validation/published.csv");

/// One published measurement; empty fields were not published or do not apply.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Published {
    /// Its id.
    pub id: String,
    /// Name of the machine in the source.
    pub system: String,
    /// The measured quantity.
    pub what: String,
    /// Compute nodes, as a number or a range.
    pub clients: String,
    /// Processes per node.
    pub client_procs_per_node: String,
    /// Storage nodes.
    pub storage_nodes: String,
    /// Access pattern, or IOR's options.
    pub pattern: String,
    /// Transfer size in bytes.
    pub transfer: String,
    /// The value; a number in rows that are compared.
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// `text` (a number in a document) or `measured data`.
    pub kind: String,
    /// The document.
    pub source: String,
    /// Ids, in the machine files' `[sources]`, of the documents it is from.
    pub documents: String,
    /// 5th percentile of repeated measurements, of which `value` is the median.
    pub p5: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// The machine file that describes the system.
    pub machine: String,
    /// `write` or `read`.
    pub access: String,
    /// `file-per-process` or `shared`.
    pub files: String,
    /// `aggregate` or `per-node`.
    pub scope: String,
    /// Smallest node count for which it was published.
    pub first_nodes: Option<u32>,
    /// Largest node count for which it was published.
    pub last_nodes: Option<u32>,
}

impl Published {
    /// The range from the 5th to the 95th percentile of repeated measurements.
    pub fn band(&self) -> Option<[f64; 2]> {
        Some([self.p5?, self.p95?])
    }

    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        self.value.parse().ok()
    }
}

/// All published measurements.
pub fn all() -> Result<Vec<Published>, Failure> {
    csv::Reader::from_reader(TABLE.as_bytes())
        .deserialize()
        .collect::<Result<_, csv::Error>>()
        .map_err(|e| Failure::Failed(format!("validation/published.csv: {e}")))
}

/// The measurement with an id.
pub fn measurement<'a>(row: &str, table: &'a [Published]) -> Result<&'a Published, Failure> {
    let found = table.iter().find(|r| r.id == row);
    found.ok_or_else(|| Failure::Failed(format!("validation/published.csv has no row {row}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn published_rows_have_a_source_and_a_unique_id() {
        let rows = all().unwrap();
        let ids: BTreeSet<&str> = rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len());
        for row in &rows {
            assert!(!row.source.is_empty(), "{}", row.id);
            assert!(["", "write", "read"].contains(&row.access.as_str()), "{}", row.id);
            assert!(["", "file-per-process", "shared"].contains(&row.files.as_str()), "{}", row.id);
            assert!(["", "aggregate", "per-node"].contains(&row.scope.as_str()), "{}", row.id);
            assert!(row.first_nodes <= row.last_nodes, "{}", row.id);
            if let Some([low, high]) = row.band() {
                let median = row.number().unwrap();
                assert!(low < median && median < high, "{}", row.id);
            }
            if !row.scope.is_empty() {
                assert!(row.number().is_some() && row.first_nodes.is_some(), "{}", row.id);
            }
        }
    }
}
