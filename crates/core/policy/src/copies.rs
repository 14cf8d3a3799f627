//! The copy of a load-balanced instance that a compute node reads.

/// The copy for compute node `number` of a job, counted from 0. `usable` has an entry for each copy:
/// whether it is readable now. `None` if none is.
///
/// Compute nodes take the copies round-robin. Those whose copy is not readable take the others
/// round-robin, so that they do not all load the next one.
pub fn choose_copy(number: u32, usable: &[bool]) -> Option<usize> {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let own = number.checked_rem(usable.len())?;
    if usable.get(own) == Some(&true) {
        return Some(own);
    }
    let others: Vec<usize> =
        (0..usable.len()).filter(|copy| usable.get(*copy) == Some(&true)).collect();
    let round = number / usable.len();
    let chosen = round.checked_rem(others.len())?;
    others.get(chosen).copied()
}

#[cfg(test)]
mod tests {
    use super::choose_copy;

    fn readers(usable: &[bool], compute_nodes: u32) -> Vec<usize> {
        let mut readers = vec![0; usable.len()];
        for number in 0..compute_nodes {
            readers[choose_copy(number, usable).unwrap()] += 1;
        }
        readers
    }

    #[test]
    fn unreadable_copy_leaves_the_others_evenly_loaded() {
        assert_eq!(readers(&[true; 3], 12), [4, 4, 4]);
        assert_eq!(readers(&[true, false, true], 12), [6, 0, 6]);
        assert_eq!(readers(&[false, false, true], 12), [0, 0, 12]);
        assert_eq!(choose_copy(5, &[false, false]), None);
        assert_eq!(choose_copy(5, &[]), None);
    }

    #[test]
    fn unreadable_copy_does_not_move_readers_of_other_copies() {
        for number in 0..9 {
            if number % 3 != 1 {
                let all = choose_copy(number, &[true; 3]);
                assert_eq!(choose_copy(number, &[true, false, true]), all);
            }
        }
    }
}
