//! [`initialise`](crate::initialise) as four methods.

use crate::error::InitError;
use crate::ledger::Ledger;
use crate::options::Method;
use crate::start::{Request, Start, StartMethod};

pub(crate) const HE: StartMethod = direct(Method::He, |r| closed_form(r, Method::He));
pub(crate) const TIMM: StartMethod = direct(Method::Timm, |r| closed_form(r, Method::Timm));
pub(crate) const XAVIER: StartMethod = direct(Method::Xavier, |r| closed_form(r, Method::Xavier));
pub(crate) const MIMETIC: StartMethod =
    direct(Method::Mimetic, |r| closed_form(r, Method::Mimetic));

const fn direct(method: Method, run: fn(&Request) -> Result<Start, InitError>) -> StartMethod {
    StartMethod {
        name: method.name(),
        description: method.description(),
        donors: 0,
        ledger: |_, _| Ledger { items: Vec::new() },
        run,
    }
}

fn closed_form(request: &Request, method: Method) -> Result<Start, InitError> {
    Ok(Start::untrained(request.closed_form(method)?))
}
