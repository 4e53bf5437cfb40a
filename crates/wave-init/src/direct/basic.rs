//! [`initialise`](crate::initialise) as four methods.

use crate::options::DirectMethod;
use crate::start::{Request, Start, StartMethod};
use wave_models::NetworkError;

pub(crate) const HE: StartMethod = direct(DirectMethod::He, |r| closed_form(r, DirectMethod::He));
pub(crate) const TIMM: StartMethod =
    direct(DirectMethod::Timm, |r| closed_form(r, DirectMethod::Timm));
pub(crate) const XAVIER: StartMethod = direct(DirectMethod::Xavier, |r| {
    closed_form(r, DirectMethod::Xavier)
});
pub(crate) const MIMETIC: StartMethod = direct(DirectMethod::Mimetic, |r| {
    closed_form(r, DirectMethod::Mimetic)
});

const fn direct(
    method: DirectMethod,
    run: fn(&Request) -> Result<Start, NetworkError>,
) -> StartMethod {
    StartMethod {
        name: method.name(),
        description: method.description(),
        donors: 0,
        images: false,
        run,
    }
}

fn closed_form(request: &Request, method: DirectMethod) -> Result<Start, NetworkError> {
    Ok(Start::untrained(request.closed_form(method)?))
}
