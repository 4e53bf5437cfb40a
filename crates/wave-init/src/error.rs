//! Checks of the numbers and names of a request.

use wave_models::{NetworkError, Refusal, refuse};

/// A result of this crate.
pub type Result<T, E = NetworkError> = std::result::Result<T, E>;

/// Returns `value` if it is finite, otherwise an error that names it.
pub(crate) fn finite(name: &str, value: f64) -> Result<f64, Refusal> {
    match value.is_finite() {
        true => Ok(value),
        false => refuse!("{name} is {value}: use a finite number"),
    }
}

/// The error of a `method` that was given a trained model although it takes none, or none although it `needs` one.
pub(crate) fn wrong_donor(method: &str, needs: bool) -> Refusal {
    let (expected, found) = (u8::from(needs), u8::from(!needs));
    Refusal::new(format!(
        "{method} starts from {expected} trained model(s), found {found}: name the model with \
         --from if the method takes one"
    ))
}

/// The error of a `width` x `width` matrix decomposition that did not converge.
pub(crate) fn no_convergence(width: usize) -> Refusal {
    Refusal::new(format!(
        "the singular value decomposition of a {width} x {width} matrix did not converge: use another seed, or smaller alpha \
         and beta"
    ))
}

/// The choice of this name; if there is none, the error lists all names.
pub fn by_name<T: Copy>(kind: &str, text: &str, choices: &[(&str, T)]) -> Result<T, Refusal> {
    let found = choices.iter().find(|(name, _)| *name == text);
    let names = choices.iter().map(|(name, _)| *name);
    let choice = found.map(|(_, choice)| *choice);
    choice.ok_or_else(|| Refusal::unknown(kind, text, names))
}

/// Gives an enum the list of its variants, and their names on the command line and in recipes.
macro_rules! named {
    ($kind:ident, $what:literal, $($name:literal => $choice:ident),+) => {
        impl $kind {
            /// Every variant, in the order of messages and tables.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$choice),+];

            /// The name on the command line and in recipes.
            pub const fn name(self) -> &'static str {
                match self {
                    $($kind::$choice => $name),+
                }
            }
        }

        impl std::str::FromStr for $kind {
            type Err = wave_models::Refusal;

            fn from_str(text: &str) -> Result<Self, wave_models::Refusal> {
                $crate::error::by_name($what, text, &$kind::ALL.map(|c| (c.name(), c)))
            }
        }
    };
}
pub(crate) use named;
