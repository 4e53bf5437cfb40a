//! The learning rate over time.

/// The learning rate over the steps of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Peak learning rate.
    pub peak: f64,
    /// Total number of steps.
    pub steps: u64,
    /// The way to the peak and down.
    pub curve: Curve,
}

/// The shape of a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// Linear warm-up, then a half cosine down to a fraction of the peak.
    Cosine {
        /// Steps over which the rate rises from `peak / warmup` to the peak.
        warmup: u64,
        /// The last rate as a fraction of the peak.
        floor: f64,
    },
    /// Linear from 0 to the peak at 2/5 of the training, to a twentieth of the peak at 4/5, and to 0
    /// (the thesis on mimetic initialisation, section 3.1.3).
    Triangular,
}

impl Schedule {
    /// The learning rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        let steps = self.steps.max(1) as f64;
        match self.curve {
            Curve::Cosine { warmup, floor } => {
                let rise = ((step + 1) as f64 / warmup.max(1) as f64).min(1.0);
                let t = (step as f64 / steps).min(1.0);
                let cosine = 0.5 * (1.0 + (std::f64::consts::PI * t).cos());
                self.peak * rise * (floor + (1.0 - floor) * cosine)
            }
            Curve::Triangular => {
                // The middle of a step, so that neither the first nor the last is at rate 0.
                let t = ((step as f64 + 0.5) / steps).min(1.0);
                let line = |t: f64, from: f64, to: f64| from + t / 0.4 * (to - from);
                self.peak
                    * match t {
                        t if t < 0.4 => line(t, 0.0, 1.0),
                        t if t < 0.8 => line(t - 0.4, 1.0, 0.05),
                        t => (1.0 - t) / 0.2 * 0.05,
                    }
            }
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
