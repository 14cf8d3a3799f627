//! Which copy of a load-balanced instance a client host reads from.

/// The copy for the host with this number among those of its job, counted from 0. `usable` says
/// of each copy whether it can be read now; `None` if none can.
///
/// Hosts go round the copies. Those whose own copy cannot be read go round the others, so that they
/// do not all fall upon the next one.
pub fn choose_copy(number: u32, usable: &[bool]) -> Option<usize> {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let own = number.checked_rem(usable.len())?;
    if usable.get(own) == Some(&true) {
        return Some(own);
    }
    let others: Vec<usize> = (0..usable.len())
        .filter(|copy| usable.get(*copy) == Some(&true))
        .collect();
    let round = number / usable.len();
    let chosen = round.checked_rem(others.len())?;
    others.get(chosen).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(usable: &[bool], hosts: u32) -> Vec<usize> {
        let mut readers = vec![0; usable.len()];
        for host in 0..hosts {
            readers[choose_copy(host, usable).unwrap()] += 1;
        }
        readers
    }

    #[test]
    fn copies_are_read_evenly_also_when_one_cannot_be() {
        assert_eq!(readers(&[true; 3], 12), [4, 4, 4]);
        assert_eq!(readers(&[true, false, true], 12), [6, 0, 6]);
        assert_eq!(readers(&[false, false, true], 12), [0, 0, 12]);
        assert_eq!(choose_copy(5, &[false, false]), None);
        assert_eq!(choose_copy(5, &[]), None);
    }

    #[test]
    fn who_has_a_copy_that_can_be_read_stays_there() {
        for host in 0..9 {
            if host % 3 != 1 {
                let all = choose_copy(host, &[true; 3]);
                assert_eq!(choose_copy(host, &[true, false, true]), all);
            }
        }
    }
}
