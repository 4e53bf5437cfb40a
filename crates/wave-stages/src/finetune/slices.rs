//! Slices of a transformer, trained in place of the whole.

use super::FinetunePlan;
use crate::elastic;
use anyhow::Result;
use wave_artefacts::model::Network;
use wave_learngene::Sizes;
use wave_run::error::request;
use wave_run::settings::Elastic;

impl FinetunePlan {
    /// The sizes of the slices, of which each step trains one; `None` if steps train the whole network.
    pub(super) fn slices(&self, network: &Network) -> Result<Option<Sizes>> {
        let (depths, widths) = (self.given.depths.as_deref(), &self.given.widths);
        if depths.is_none() && widths.is_none() {
            return match self.elastic == Elastic::default() {
                true => Ok(None),
                false => Err(request(
                    "growth and growth_power apply only with --depths or --widths, which draw the size of each \
                     step",
                )),
            };
        }
        let Network::Vit(whole) = network else {
            return Err(request(format!(
                "depths and widths select slices of a vision transformer, but this is {}; remove \
                 them",
                network.family()
            )));
        };
        let depths = match depths {
            None => (whole.depth, whole.depth),
            Some([least, most]) if (1..=*most).contains(least) && *most <= whole.depth => {
                (*least, *most)
            }
            Some(other) => {
                return Err(request(format!(
                    "depths = {other:?}; give a minimum and a maximum, out of {} layers",
                    whole.depth
                )));
            }
        };
        let widths = widths.clone().unwrap_or(vec![whole.width]);
        let head = whole.head_width();
        let fits = |w: &usize| *w > 0 && *w <= whole.width && w.is_multiple_of(head);
        match widths.iter().find(|w| !fits(w)) {
            None => elastic::sizes(&self.elastic.clone().into(), depths, widths, 0.0).map(Some),
            Some(wrong) => Err(request(format!(
                "widths: {wrong}, expected a multiple of the head width {head}, up to the model's \
                 width {}",
                whole.width
            ))),
        }
    }
}
