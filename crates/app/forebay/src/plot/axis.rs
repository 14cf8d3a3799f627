//! Axes: conversion of values to pixels, and ticks at round values.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic.
    Log,
}

/// An axis: a range of values on a range of pixels.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis from `low` at pixel `from` to `high` at pixel `to`. A range that is empty or not
    /// finite, or not positive on a logarithmic axis, is replaced by one that can be drawn.
    pub fn new(scale: Scale, low: f64, high: f64, from: f64, to: f64) -> Axis {
        let (mut low, mut high) = if low.is_finite() && high.is_finite() && low <= high {
            (low, high)
        } else {
            (1.0, 10.0)
        };
        if scale == Scale::Log {
            low = low.max(1e-12);
            high = high.max(low);
            if high / low < 1.0001 {
                low /= 2.0;
                high *= 2.0;
            }
        } else if high - low < 1e-12 * high.abs().max(1.0) {
            low -= 0.5;
            high += 0.5;
        }
        Axis { scale, low, high, from, to }
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(1e-12) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Whether a value lies on the axis.
    pub fn holds(&self, value: f64) -> bool {
        let slack = 1e-9 * self.high.abs();
        value >= self.low - slack && value <= self.high + slack
    }

    /// Ends of the range.
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Round values to mark: powers of ten (with 2 and 5 between them on short ranges) on a
    /// logarithmic axis, 1, 2 or 5 times a power of ten apart on a linear one.
    pub fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let span = self.high - self.low;
                let rough = 10f64.powf((span / 5.0).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .into_iter()
                    .map(|m| m * rough)
                    .find(|step| span / step <= 6.0)
                    .unwrap_or(10.0 * rough);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).map(|i| i as f64 * step).collect()
            }
            Scale::Log => {
                let decades = (self.high / self.low).log10();
                let between: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let first = self.low.log10().floor() as i32;
                let last = self.high.log10().ceil() as i32;
                (first..=last)
                    .flat_map(|e| between.iter().map(move |m| m * 10f64.powi(e)))
                    .filter(|v| self.holds(*v))
                    .collect()
            }
        }
    }
}

/// A tick's label without trailing zeros: `0.5`, `20`, `1,000`.
pub fn label(value: f64) -> String {
    if value.abs() >= 1000.0 {
        return forebay_units::human::grouped(value.round() as u64);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_pixels() {
        let axis = Axis::new(Scale::Log, 1.0, 100.0, 0.0, 200.0);
        assert!((axis.at(10.0) - 100.0).abs() < 1e-9);
        let upwards = Axis::new(Scale::Linear, 0.0, 4.0, 100.0, 0.0);
        assert!((upwards.at(1.0) - 75.0).abs() < 1e-9);
    }

    #[test]
    fn ticks_are_at_round_values() {
        assert_eq!(Axis::new(Scale::Linear, 0.0, 1.0, 0.0, 1.0).ticks().len(), 6);
        assert_eq!(
            Axis::new(Scale::Log, 1.0, 2000.0, 0.0, 1.0).ticks(),
            [1.0, 10.0, 100.0, 1000.0]
        );
        assert_eq!(Axis::new(Scale::Log, 1.0, 10.0, 0.0, 1.0).ticks(), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(label(0.5), "0.5");
        assert_eq!(label(10.0), "10");
        assert_eq!(label(1000.0), "1,000");
    }

    #[test]
    fn degenerate_ranges_give_drawable_axes() {
        for (low, high) in [(0.0, 0.0), (5.0, 5.0), (f64::NAN, 1.0), (3.0, 1.0)] {
            for scale in [Scale::Linear, Scale::Log] {
                let axis = Axis::new(scale, low, high, 0.0, 100.0);
                assert!(axis.at(1.0).is_finite());
                assert!(axis.ticks().len() < 100);
            }
        }
    }
}
