//! Rates of the solver: by hand, and against a slow solver on random topologies.

use forebay_flow::{Bottleneck, FlowId, FlowSpec, LinkId, Solver};
use proptest::prelude::*;

const INFINITE: f64 = f64::INFINITY;

fn flow(path: &[(LinkId, f64)]) -> FlowSpec<'_> {
    FlowSpec { count: 1, weight: 1.0, cap: INFINITE, path }
}

#[test]
fn flows_over_three_links_get_the_rates_of_the_textbook() {
    let mut solver = Solver::new();
    let [a, b, c] = [10.0, 6.0, 4.0].map(|capacity| solver.add_link(capacity));
    let long = solver.add_flow(flow(&[(a, 1.0), (b, 1.0), (c, 1.0)]));
    let on_a = solver.add_flow(flow(&[(a, 1.0)]));
    let on_b = solver.add_flow(flow(&[(b, 1.0)]));
    let on_c = solver.add_flow(flow(&[(c, 1.0)]));
    solver.solve();
    assert_eq!([long, on_a, on_b, on_c].map(|f| solver.rate(f)), [2.0, 8.0, 4.0, 2.0]);
    assert_eq!(solver.bottleneck(long), Bottleneck::Link(c));
    assert_eq!(solver.bottleneck(on_a), Bottleneck::Link(a));
    assert_eq!(solver.load(b), 6.0);
}

#[test]
fn caps_weights_counts_and_split_paths_share_a_link() {
    let mut solver = Solver::new();
    let [a, b] = [12.0, 100.0].map(|capacity| solver.add_link(capacity));
    let capped = solver.add_flow(FlowSpec { cap: 1.0, ..flow(&[(a, 1.0)]) });
    let heavy = solver.add_flow(FlowSpec { weight: 3.0, ..flow(&[(a, 1.0)]) });
    let class = solver.add_flow(FlowSpec { count: 2, ..flow(&[(a, 1.0)]) });
    let split = solver.add_flow(flow(&[(a, 0.5), (b, 0.5)]));
    solver.solve();
    // 12 - 1 = 11 for weights of 3 + 2 + 1/2.
    let rates = [capped, heavy, class, split].map(|f| solver.rate(f));
    assert_eq!(rates, [1.0, 6.0, 2.0, 2.0]);
    assert_eq!(solver.bottleneck(capped), Bottleneck::Cap);
    assert_eq!(solver.load(b), 1.0);
}

#[test]
fn change_reaches_only_flows_that_share_a_link_that_can_limit_them() {
    let mut solver = Solver::new();
    let [a, b, shared] = [10.0, 10.0, 100.0].map(|capacity| solver.add_link(capacity));
    let one = solver.add_flow(flow(&[(a, 1.0), (shared, 1.0)]));
    let other = solver.add_flow(flow(&[(b, 1.0), (shared, 1.0)]));
    assert_eq!(solver.solve(), [one, other]);
    let second = solver.add_flow(flow(&[(a, 1.0), (shared, 1.0)]));
    assert_eq!(solver.solve(), [one, second], "the shared link cannot be full");
    solver.set_capacity(shared, 12.0);
    assert_eq!(solver.solve(), [one, other, second]);
    assert_eq!([one, second, other].map(|f| solver.rate(f)), [4.0; 3]);
    solver.remove_flow(second);
    assert_eq!(solver.solve(), [one, other]);
    assert_eq!([one, other].map(|f| solver.rate(f)), [6.0; 2]);
    solver.set_capacity(shared, 100.0);
    assert_eq!(solver.solve(), [one, other], "the link limited them before");
    assert_eq!([one, other].map(|f| solver.rate(f)), [10.0; 2]);
}

/// The shared link could be full at the rates that the others could give each flow alone, 30, and is not: it
/// carries 20 of 25.
#[test]
fn change_does_not_pass_over_a_link_with_capacity_left() {
    let mut solver = Solver::new();
    let [a, b, shared] = [10.0, 10.0, 25.0].map(|capacity| solver.add_link(capacity));
    let on_a = [0; 2].map(|_| solver.add_flow(flow(&[(a, 1.0), (shared, 1.0)])));
    let on_b = solver.add_flow(flow(&[(b, 1.0), (shared, 1.0)]));
    solver.solve();
    assert_eq!([on_a[0], on_a[1], on_b].map(|f| solver.rate(f)), [5.0, 5.0, 10.0]);
    solver.remove_flow(on_a[1]);
    assert_eq!(solver.solve(), [on_a[0]]);
    assert_eq!(solver.rate(on_a[0]), 10.0);
}

/// The shared link has 2 left of 14. When the flow on `a` may have 8, it is full, and both have 7.
#[test]
fn link_that_new_rates_fill_limits_its_other_flows_too() {
    let mut solver = Solver::new();
    let [a, b, shared] = [2.0, 10.0, 14.0].map(|capacity| solver.add_link(capacity));
    let on_a = solver.add_flow(flow(&[(a, 1.0), (shared, 1.0)]));
    let on_b = solver.add_flow(flow(&[(b, 1.0), (shared, 1.0)]));
    solver.solve();
    assert_eq!([on_a, on_b].map(|f| solver.rate(f)), [2.0, 10.0]);
    solver.set_capacity(a, 8.0);
    assert_eq!(solver.solve(), [on_a, on_b]);
    assert_eq!([on_a, on_b].map(|f| solver.rate(f)), [7.0, 7.0]);
    assert_eq!([on_a, on_b].map(|f| solver.bottleneck(f)), [Bottleneck::Link(shared); 2]);
}

/// A flow of a random system.
#[derive(Clone, Debug)]
struct Spec {
    count: u32,
    weight: f64,
    cap: f64,
    path: Vec<(usize, f64)>,
}

/// The obviously right solver: all rates grow by steps to the next stop, and everything is computed
/// again after each.
fn reference(capacities: &[f64], flows: &[Spec]) -> Vec<f64> {
    let mut rates: Vec<Option<f64>> = vec![None; flows.len()];
    let used = |flow: &Spec, link: usize| {
        let share = flow.path.iter().find(|(l, _)| *l == link).map_or(0.0, |(_, share)| *share);
        share * f64::from(flow.count)
    };
    while rates.iter().any(Option::is_none) {
        let level_of = |link: usize| {
            let (mut left, mut weight) = (capacities[link], 0.0);
            for (flow, rate) in flows.iter().zip(&rates) {
                match rate {
                    Some(rate) => left -= used(flow, link) * rate,
                    None => weight += used(flow, link) * flow.weight,
                }
            }
            if weight > 0.0 { left.max(0.0) / weight } else { INFINITE }
        };
        let levels: Vec<f64> = (0..capacities.len()).map(level_of).collect();
        let growing = || flows.iter().enumerate().filter(|(i, _)| rates[*i].is_none());
        let of_caps = growing().map(|(_, flow)| flow.cap / flow.weight);
        let level = levels.iter().copied().chain(of_caps).fold(INFINITE, f64::min);
        let fixed: Vec<usize> = growing()
            .filter(|(_, flow)| {
                flow.cap / flow.weight <= level
                    || flow.path.iter().any(|(link, _)| levels[*link] <= level)
            })
            .map(|(i, _)| i)
            .collect();
        for index in fixed {
            rates[index] = Some((flows[index].weight * level).min(flows[index].cap));
        }
    }
    rates.into_iter().flatten().collect()
}

fn system() -> impl Strategy<Value = (Vec<f64>, Vec<Spec>)> {
    let capacities = prop::collection::vec((1u32..1_000).prop_map(f64::from), 2..9);
    capacities.prop_flat_map(|capacities| {
        let path = prop::collection::btree_map(0..capacities.len(), 1u32..5, 1..5);
        let cap = prop_oneof![Just(INFINITE), (1u32..200).prop_map(f64::from)];
        let flow = (1u32..4, 1u32..4, cap, path).prop_map(|(count, weight, cap, path)| Spec {
            count,
            weight: f64::from(weight),
            cap,
            path: path.into_iter().map(|(l, share)| (l, f64::from(share) / 4.0)).collect(),
        });
        (Just(capacities), prop::collection::vec(flow, 1..25))
    })
}

fn add(solver: &mut Solver, links: &[LinkId], spec: &Spec) -> FlowId {
    let path: Vec<(LinkId, f64)> = spec.path.iter().map(|&(l, share)| (links[l], share)).collect();
    let Spec { count, weight, cap, .. } = *spec;
    solver.add_flow(FlowSpec { count, weight, cap, path: &path })
}

/// Asserts that rates are max-min fair: no link is above its capacity, and each flow has its cap or
/// a full link on which no flow has more for its weight.
fn check(solver: &Solver, links: &[LinkId], flows: &[(FlowId, Spec)]) {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    for &link in links {
        let (load, capacity) = (solver.load(link), solver.capacity(link));
        assert!(load <= capacity * (1.0 + 1e-9), "{link:?}: {load} of {capacity}");
    }
    for (id, spec) in flows {
        let rate = solver.rate(*id);
        match solver.bottleneck(*id) {
            Bottleneck::Cap => assert!(close(rate, spec.cap), "{spec:?}: {rate}"),
            Bottleneck::Link(link) => {
                assert!(rate <= spec.cap, "{spec:?}: {rate}");
                assert!(close(solver.load(link), solver.capacity(link)), "{link:?} is not full");
                let on_link = flows
                    .iter()
                    .filter(|(_, other)| other.path.iter().any(|(l, _)| links[*l] == link));
                for (other_id, other) in on_link {
                    let other_level = solver.rate(*other_id) / other.weight;
                    assert!(other_level <= rate / spec.weight * (1.0 + 1e-9), "{other:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rates_equal_those_of_a_slow_solver((capacities, specs) in system()) {
        let mut solver = Solver::new();
        let links: Vec<LinkId> = capacities.iter().map(|c| solver.add_link(*c)).collect();
        let flows: Vec<(FlowId, Spec)> =
            specs.iter().map(|spec| (add(&mut solver, &links, spec), spec.clone())).collect();
        solver.solve();
        check(&solver, &links, &flows);
        for ((id, spec), expected) in flows.iter().zip(reference(&capacities, &specs)) {
            let rate = solver.rate(*id);
            prop_assert!((rate - expected).abs() <= 1e-9 * expected.max(1e-9), "{:?}: {} not {}", spec, rate, expected);
        }
    }

    #[test]
    fn rates_after_changes_equal_those_of_a_new_system(
        (capacities, specs) in system(), changes in prop::collection::vec((0u8..4, 0usize..1_000, 1u32..500), 1..30),
    ) {
        let mut solver = Solver::new();
        let mut capacities = capacities;
        let links: Vec<LinkId> = capacities.iter().map(|c| solver.add_link(*c)).collect();
        let mut flows: Vec<(FlowId, Spec)> =
            specs.iter().map(|spec| (add(&mut solver, &links, spec), spec.clone())).collect();
        solver.solve();
        for (kind, which, value) in changes {
            let value = f64::from(value);
            match kind {
                0 => {
                    capacities[which % links.len()] = value;
                    solver.set_capacity(links[which % links.len()], value);
                }
                1 if flows.len() > 1 => solver.remove_flow(flows.swap_remove(which % flows.len()).0),
                2 => {
                    let spec = specs[which % specs.len()].clone();
                    flows.push((add(&mut solver, &links, &spec), spec));
                }
                _ => {
                    let index = which % flows.len();
                    flows[index].1.cap = value;
                    solver.set_cap(flows[index].0, value);
                }
            }
            solver.solve();
        }
        check(&solver, &links, &flows);
        let specs: Vec<Spec> = flows.iter().map(|(_, spec)| spec.clone()).collect();
        for ((id, spec), expected) in flows.iter().zip(reference(&capacities, &specs)) {
            let rate = solver.rate(*id);
            prop_assert!((rate - expected).abs() <= 1e-9 * expected.max(1e-9), "{:?}: {} not {}", spec, rate, expected);
        }
    }
}

#[test]
fn same_calls_give_the_same_bits() {
    let rates = || {
        let mut solver = Solver::new();
        let links: Vec<LinkId> = (1..20).map(|c| solver.add_link(f64::from(c) / 3.0)).collect();
        let flows: Vec<FlowId> = (0..200_usize)
            .map(|i| {
                let path = [(links[i % 19], 1.0), (links[(i * 7 + 3) % 19], 0.3)];
                solver.add_flow(flow(if path[0].0 == path[1].0 { &path[..1] } else { &path }))
            })
            .collect();
        solver.solve();
        flows.iter().map(|f| solver.rate(*f).to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(rates(), rates());
}

/// The slow flow has 2 on its own link; the other two share the rest of the common one. When one of these ends, the rate
/// of the other grows, and that of the slow flow is not computed again.
#[test]
fn change_of_a_full_link_does_not_reach_slower_flows() {
    let mut solver = Solver::new();
    let [own, shared] = [2.0, 10.0].map(|capacity| solver.add_link(capacity));
    let slow = solver.add_flow(flow(&[(own, 1.0), (shared, 1.0)]));
    let [stays, ends] = [0; 2].map(|_| solver.add_flow(flow(&[(shared, 1.0)])));
    solver.solve();
    assert_eq!([slow, stays, ends].map(|f| solver.rate(f)), [2.0, 4.0, 4.0]);
    solver.remove_flow(ends);
    assert_eq!(solver.solve(), [stays]);
    assert_eq!([slow, stays].map(|f| solver.rate(f)), [2.0, 8.0]);
    // It is reached where the link leaves it less than its own.
    solver.set_capacity(shared, 3.0);
    assert_eq!(solver.solve(), [slow, stays]);
    assert_eq!([slow, stays].map(|f| solver.rate(f)), [1.5, 1.5]);
}

/// A number below `most`, from a linear congruential generator.
fn draw(state: &mut u64, most: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) as usize % most
}

/// Rates of a system after each of many changes, against those of a new system with the same flows.
#[test]
fn rates_of_a_large_system_stay_those_of_a_new_one() {
    let mut random = 7;
    let capacities: Vec<f64> = (0..40).map(|_| 10.0 + draw(&mut random, 300) as f64).collect();
    let mut solver = Solver::new();
    let links: Vec<LinkId> = capacities.iter().map(|c| solver.add_link(*c)).collect();
    let mut flows: Vec<(FlowId, Spec)> = Vec::new();
    for turn in 0..1_500 {
        if flows.len() > 250 || (flows.len() > 50 && draw(&mut random, 2) == 0) {
            let index = draw(&mut random, flows.len());
            solver.remove_flow(flows.swap_remove(index).0);
        } else {
            let mut path: Vec<(usize, f64)> = (0..3)
                .map(|_| (draw(&mut random, 40), 0.25 * (1 + draw(&mut random, 4)) as f64))
                .collect();
            path.sort_by_key(|(link, _)| *link);
            path.dedup_by_key(|(link, _)| *link);
            let cap = if draw(&mut random, 3) == 0 {
                0.5 + draw(&mut random, 9) as f64
            } else {
                INFINITE
            };
            let weight = 1.0 + draw(&mut random, 2) as f64;
            let spec = Spec { count: 1, weight, cap, path };
            flows.push((add(&mut solver, &links, &spec), spec));
        }
        solver.solve();
        if turn % 10 > 0 {
            continue;
        }
        let mut new = Solver::new();
        let links: Vec<LinkId> = capacities.iter().map(|c| new.add_link(*c)).collect();
        let again: Vec<FlowId> =
            flows.iter().map(|(_, spec)| add(&mut new, &links, spec)).collect();
        new.solve();
        for ((id, spec), again) in flows.iter().zip(again) {
            let (rate, expected) = (solver.rate(*id), new.rate(again));
            assert!((rate - expected).abs() <= 1e-9 * expected, "{spec:?}: {rate} not {expected}");
        }
    }
}
