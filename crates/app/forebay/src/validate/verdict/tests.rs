use super::*;

fn steps(values: &[(f64, f64)]) -> Vec<Step> {
    values
        .iter()
        .map(|(x, v)| Step {
            x: *x,
            label: x.to_string(),
            value: *v,
            half_width: None,
            alternative: None,
            steady_gbps: None,
            limit: String::new(),
        })
        .collect()
}

#[test]
fn saturation_is_the_first_step_near_the_best() {
    let curve = steps(&[(1.0, 1.0), (2.0, 2.0), (4.0, 3.9), (8.0, 4.0), (16.0, 3.0)]);
    assert_eq!(saturation(&curve), Some(4.0));
    assert_eq!(saturation(&[]), None);
}

#[test]
fn gain_is_that_of_a_step_over_the_first_one() {
    let mut check = crate::validate::cases::all().unwrap().remove(0).check.remove(0);
    let sweep = steps(&[(1.0, 2.0), (4.0, 5.0), (8.0, 6.0)]);
    check.at = Some("4".into());
    let outcome = compare_gain(&check, &sweep, Some(2.0), 30.0);
    assert_eq!((outcome.simulated, outcome.met), (Some(2.5), true));
    check.at = None;
    assert_eq!(compare_gain(&check, &sweep, Some(2.0), 30.0).simulated, Some(3.0));
    assert!(!compare_gain(&check, &sweep, Some(2.0), 30.0).met);
    assert!(!compare_gain(&check, &[], Some(2.0), 30.0).met);
}

#[test]
fn limit_is_met_only_if_every_step_has_it() {
    let case = crate::validate::cases::all().unwrap().remove(0);
    let mut check = case.check[0].clone();
    check.expect = Some("server".into());
    let mut sweep = steps(&[(1.0, 1.0), (2.0, 2.0)]);
    sweep[0].limit = "client".into();
    sweep[1].limit = "server".into();
    let outcome = compare_limits(&check, &sweep);
    assert!(!outcome.met);
    assert_eq!(outcome.verdict, "MISSED: client at 1");
    sweep[0].limit = "server".into();
    assert!(compare_limits(&check, &sweep).met);
    assert!(!compare_limits(&check, &[]).met, "nothing was simulated");
}

#[test]
fn production_row_is_met_between_its_percentiles() {
    let at = |value: f64| compare_with_band(&steps(&[(1.0, value)]), Some(100.0), [60.0, 110.0]);
    assert!(at(60.0).met && at(100.0).met && at(110.0).met);
    assert!(!at(59.9).met && !at(110.1).met);
    assert_eq!(at(59.9).accepted, "within 60 to 110");
}

#[test]
fn sweep_is_judged_by_its_worst_value() {
    let curve = steps(&[(1.0, 1190.0), (2.0, 1000.0), (4.0, 1210.0)]);
    assert_eq!(worst(curve.iter().map(|s| s.value), 1200.0), Some(1000.0));
    assert_eq!(error_percent(Some(1200.0), Some(900.0)), Some(-25.0));
}

/// As long as its processes have few transfers, a row of the steady rate says so; of a phase with many it says nothing.
#[test]
fn rows_of_a_steady_rate_say_whether_there_is_one() {
    let of_phase = ["opens take all".to_string()];
    assert_eq!(warnings_of(Metric::SteadyRate, None, &of_phase), [FEW_TRANSFERS]);
    assert!(warnings_of(Metric::SteadyRate, Some(1.0), &of_phase).is_empty());
    assert_eq!(warnings_of(Metric::SlowestRank, None, &of_phase), of_phase);
}
