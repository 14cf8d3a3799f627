//! Comparisons with published measurements, of both kinds: IOR runs, and MPI messages and traffic.

use super::cases::{self, Case};
use super::messages::{self, MessageCase};
use super::status::Basis;
use forebay_console::Failure;

/// A simulated case and its measurements.
#[derive(Clone, Debug)]
pub enum Comparison {
    /// A run or sweep of IOR.
    Ior(Case),
    /// A command that simulates messages or traffic.
    Messages(MessageCase),
}

impl Comparison {
    /// The name of the case.
    pub fn id(&self) -> &str {
        match self {
            Comparison::Ior(case) => &case.id,
            Comparison::Messages(case) => &case.id,
        }
    }

    /// The machine file.
    pub fn machine(&self) -> &str {
        match self {
            Comparison::Ior(case) => &case.machine,
            Comparison::Messages(case) => case.machine(),
        }
    }

    /// The parts of each check on which the standing of its row depends.
    pub fn bases(&self) -> Vec<Basis<'_>> {
        match self {
            Comparison::Ior(case) => case.check.iter().map(|c| c.basis()).collect(),
            Comparison::Messages(case) => case.check.iter().map(|c| c.basis()).collect(),
        }
    }

    /// Number of simulations.
    pub fn simulations(&self) -> usize {
        match self {
            Comparison::Ior(case) => case.runs().len(),
            Comparison::Messages(_) => 1,
        }
    }

    fn is_quick(&self) -> bool {
        match self {
            Comparison::Ior(case) => case.quick,
            Comparison::Messages(case) => case.quick,
        }
    }

    /// Keeps the checks of these rows only.
    fn retain(&mut self, rows: &[String]) {
        match self {
            Comparison::Ior(case) => case.check.retain(|c| rows.contains(&c.row)),
            Comparison::Messages(case) => case.check.retain(|c| rows.contains(&c.row)),
        }
    }
}

/// All cases.
pub fn all() -> Result<Vec<Comparison>, Failure> {
    let ior = cases::all()?.into_iter().map(Comparison::Ior);
    Ok(ior.chain(messages::all()?.into_iter().map(Comparison::Messages)).collect())
}

/// The cases selected by their id or by the id of a measurement, only the quick ones, or all.
pub fn chosen(ids: &[String], quick: bool) -> Result<Vec<Comparison>, Failure> {
    let mut cases = all()?;
    let mut known: Vec<&str> = cases.iter().map(Comparison::id).collect();
    known.extend(cases.iter().flat_map(Comparison::bases).map(|basis| basis.row));
    if let Some(unknown) = ids.iter().find(|id| !known.contains(&id.as_str())) {
        return Err(Failure::Input(format!(
            "there is no case {unknown:?}; there are {}",
            known.join(", ")
        )));
    }
    if !ids.is_empty() {
        for case in &mut cases {
            if !ids.iter().any(|id| id == case.id()) {
                case.retain(ids);
            }
        }
        cases.retain(|c| !c.bases().is_empty());
    }
    if quick {
        cases.retain(Comparison::is_quick);
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_chosen_by_id_row_and_speed() {
        let ids =
            |cases: Vec<Comparison>| cases.iter().map(|c| c.id().to_string()).collect::<Vec<_>>();
        assert_eq!(ids(chosen(&["shaheen2".into()], false).unwrap()), ["shaheen2"]);
        let one = chosen(&["cori1-fpp-read".into()], false).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].bases().len(), 1);
        assert!(ids(chosen(&[], true).unwrap()).len() < all().unwrap().len());
        let error = chosen(&["nonsense".into()], false).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("shaheen2-write") && text.contains("daint-latency-8B"), "{text}");
    }
}
