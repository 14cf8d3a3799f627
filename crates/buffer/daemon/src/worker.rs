//! Work on threads whose end another thread waits for.

/// Reports the outcome of a thread's work when it is dropped.
struct EndReport<T, P: FnOnce() -> T, R: FnOnce(T)> {
    outcome: Option<T>,
    how: Option<(P, R)>,
}

impl<T, P: FnOnce() -> T, R: FnOnce(T)> Drop for EndReport<T, P, R> {
    fn drop(&mut self) {
        if let Some((panicked, report)) = self.how.take() {
            report(self.outcome.take().unwrap_or_else(panicked));
        }
    }
}

/// Does the work and reports its outcome. If it panics, `panicked` gives the outcome, and the panic
/// goes on: whoever waits for the end must not wait for ever.
pub(crate) fn work_and_report<T>(
    work: impl FnOnce() -> T,
    panicked: impl FnOnce() -> T,
    report: impl FnOnce(T),
) {
    let mut end = EndReport { outcome: None, how: Some((panicked, report)) };
    end.outcome = Some(work());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn outcome_is_reported_once_also_after_a_panic() {
        for (fails, expected) in [(false, "done"), (true, "panicked")] {
            let (sender, reports) = channel();
            let work = move || match fails {
                false => "done",
                true => panic!("a panic of a test"),
            };
            let report = move |outcome| sender.send(outcome).unwrap();
            let thread = std::thread::spawn(move || work_and_report(work, || "panicked", report));
            assert_eq!(thread.join().is_err(), fails);
            assert_eq!(reports.iter().collect::<Vec<_>>(), [expected]);
        }
    }
}
