//! [`initialise`](crate::initialise) as four methods.

use crate::choices::DirectMethod;
use crate::fill::fill;
use crate::start::{Start, StartMethod};

/// A method named after its distribution.
macro_rules! direct {
    ($method:ident, $description:literal) => {
        StartMethod {
            name: DirectMethod::$method.name(),
            description: $description,
            donor: false,
            images: false,
            run: |request| {
                let weights = fill(request, DirectMethod::$method)?;
                Ok(Start::untrained(weights))
            },
        }
    };
}

pub(crate) const HE: StartMethod = direct!(
    He,
    "Kaiming normal: standard deviation sqrt(2 / fan-in) (He et al. 2015, section 2.2)"
);
pub(crate) const TIMM: StartMethod = direct!(
    Timm,
    "truncated normal with standard deviation 0.02, the default in DeiT and timm (Touvron et al. \
     2021, section 6)"
);
pub(crate) const XAVIER: StartMethod = direct!(
    Xavier,
    "uniform in ±sqrt(6 / (fan-in + fan-out)) (Glorot and Bengio 2010, equation 16)"
);
pub(crate) const MIMETIC: StartMethod = direct!(
    Mimetic,
    "attention as in trained networks: W_Q W_K^T near the identity, W_V W_proj near its negative \
     (Trockman and Kolter 2023, section 4)"
);
