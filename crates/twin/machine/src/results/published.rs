//! Published measurements of the kind of a simulated phase.

use serde::{Deserialize, Serialize};

/// Published rates of the same kind as those of a phase, and how far simulations of them with packets were off.
/// Rows to which a parameter was fitted are only counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedKind {
    /// `write` or `read`.
    pub access: String,
    /// `file per process`, `shared file`, or `shared file with collective transfers`.
    pub files: String,
    /// The range of transfer sizes, such as `transfers below 64 KiB`.
    pub transfers: String,
    /// `burst buffer` or `parallel file system`.
    pub file_system: String,
    /// Ids of the rows.
    pub rows: Vec<String>,
    /// Those of them whose simulated value is within the accepted range.
    pub hold: usize,
    /// The least and the greatest 100 × (simulated − measured) / measured; `None` without rows.
    pub error_percent: Option<[f64; 2]>,
    /// Further rows of this kind, to which a parameter was fitted.
    pub fitted: usize,
}
