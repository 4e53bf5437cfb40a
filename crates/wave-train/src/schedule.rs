//! The learning rate over time.

/// Linear warm-up, then a half cosine down to a fraction of the peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Peak learning rate.
    pub peak: f64,
    /// Steps in all.
    pub steps: u64,
    /// Steps over which the rate rises from `peak / warmup` to the peak.
    pub warmup: u64,
    /// The last rate as a fraction of the peak.
    pub floor: f64,
}

impl Schedule {
    /// The learning rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        let rise = ((step + 1) as f64 / self.warmup.max(1) as f64).min(1.0);
        let t = (step as f64 / self.steps.max(1) as f64).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * t).cos());
        self.peak * rise * (self.floor + (1.0 - self.floor) * cosine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_then_falls_to_the_floor() {
        let s = Schedule {
            peak: 1.0,
            steps: 100,
            warmup: 10,
            floor: 0.01,
        };
        assert!((s.at(0) - 0.1).abs() < 1e-3);
        assert!((0..9).all(|i| s.at(i) < s.at(i + 1)));
        assert!((10..99).all(|i| s.at(i) > s.at(i + 1)));
        assert!((s.at(100) - 0.01).abs() < 1e-12);
        assert_eq!(s.at(5000), s.at(100));
    }

    #[test]
    fn no_steps_and_no_warmup_are_no_division_by_zero() {
        assert!(
            Schedule {
                peak: 1.0,
                steps: 0,
                warmup: 0,
                floor: 0.0
            }
            .at(0)
            .is_finite()
        );
    }
}
