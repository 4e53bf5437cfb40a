//! The learning rate over time.

/// The learning rate over the steps of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Linear warm-up, then a half cosine down to a fraction of the peak.
    Cosine {
        /// Peak learning rate.
        peak: f64,
        /// Total number of steps.
        steps: u64,
        /// Steps over which the rate rises from `peak / warmup` to the peak.
        warmup: u64,
        /// The last rate as a fraction of the peak.
        floor: f64,
    },
    /// Linear from 0 to the peak at 2/5 of the training, to a twentieth of the peak at 4/5, and to 0
    /// (the thesis on mimetic initialisation, section 3.1.3).
    Triangular {
        /// Peak learning rate.
        peak: f64,
        /// Total number of steps.
        steps: u64,
    },
}

impl Schedule {
    /// Total number of steps.
    pub fn steps(&self) -> u64 {
        match *self {
            Schedule::Cosine { steps, .. } | Schedule::Triangular { steps, .. } => steps,
        }
    }

    /// The learning rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        match *self {
            Schedule::Cosine {
                peak,
                steps,
                warmup,
                floor,
            } => {
                let rise = ((step + 1) as f64 / warmup.max(1) as f64).min(1.0);
                let t = (step as f64 / steps.max(1) as f64).min(1.0);
                let cosine = 0.5 * (1.0 + (std::f64::consts::PI * t).cos());
                peak * rise * (floor + (1.0 - floor) * cosine)
            }
            Schedule::Triangular { peak, steps } => {
                // The middle of a step, so that neither the first nor the last is at rate 0.
                let t = ((step as f64 + 0.5) / steps.max(1) as f64).min(1.0);
                let line = |t: f64, from: f64, to: f64| from + t / 0.4 * (to - from);
                peak * match t {
                    t if t < 0.4 => line(t, 0.0, 1.0),
                    t if t < 0.8 => line(t - 0.4, 1.0, 0.05),
                    t => (1.0 - t) / 0.2 * 0.05,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_then_falls_to_the_floor() {
        let s = Schedule::Cosine {
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
            Schedule::Cosine {
                peak: 1.0,
                steps: 0,
                warmup: 0,
                floor: 0.0
            }
            .at(0)
            .is_finite()
        );
    }

    #[test]
    fn triangular_is_straight_between_four_points() {
        let s = Schedule::Triangular {
            peak: 2.0,
            steps: 1000,
        };
        let is = |step, rate: f64| assert!((s.at(step) - rate).abs() < 5e-3, "{}", s.at(step));
        for (step, rate) in [
            (0, 0.0),
            (200, 1.0),
            (400, 2.0),
            (600, 1.05),
            (800, 0.1),
            (900, 0.05),
        ] {
            is(step, rate);
        }
        assert!(s.at(0) > 0.0 && s.at(999) > 0.0);
        assert_eq!(s.at(5000), 0.0);
    }
}
