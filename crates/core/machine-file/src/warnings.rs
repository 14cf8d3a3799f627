//! Warnings about valid machines that are slow to simulate.

use crate::machine::Network;
use forebay_units::Time;

/// A latency of rank-3 links below which a simulation has many more steps than events.
const LEAST_GLOBAL_LATENCY: Time = Time(10_000);

impl Network {
    /// Warnings, each with the remedy.
    pub fn warnings(&self) -> Vec<String> {
        let latency = self.global.latency;
        if self.groups > 1 && latency < LEAST_GLOBAL_LATENCY {
            return vec![format!(
                "network.global.latency is {latency}: the simulation advances in steps of this length \
                 and takes very long; cables between groups have some 100 ns or more"
            )];
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use crate::Setting;
    use crate::machine::Machine;

    #[test]
    fn latency_that_makes_the_simulation_slow_gives_a_warning() {
        let with = |latency: &str| {
            let setting =
                Setting { key: "network.global.latency".into(), value: latency.to_string() };
            Machine::load_with("toy", &[setting]).unwrap().network.warnings()
        };
        assert_eq!(with("200 ns"), Vec::<String>::new());
        let warnings = with("1 ps");
        assert!(warnings.len() == 1 && warnings[0].contains("1 ps"), "{warnings:?}");
    }
}
