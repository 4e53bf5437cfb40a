//! Errors of a request to initialise.

/// Why a weight map could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A size is zero.
    #[error("{size} is 0: a vision transformer needs at least 1")]
    ZeroSize {
        /// Which size, such as `width`.
        size: &'static str,
    },

    /// The weight map would not fit in any reasonable memory.
    #[error(
        "the network would have {parameters} parameters, more than the {limit} allowed: \
         use a smaller depth, width, hidden width, patch, grid or number of classes"
    )]
    TooLarge {
        /// Number of parameters asked for (saturating).
        parameters: u128,
        /// Largest number allowed.
        limit: u128,
    },

    /// Sinusoidal positions fill the width with four equal parts.
    #[error(
        "sinusoidal positions need a width that is a multiple of 4, found {width}: \
         use width {}, or learned positions",
        width.div_ceil(4).saturating_mul(4)
    )]
    WidthNotDivisibleByFour {
        /// Width of the network.
        width: usize,
    },

    /// A number that must be finite is not.
    #[error("{name} is {value}: use a finite number")]
    NotFinite {
        /// Which number, such as `qk alpha`.
        name: &'static str,
        /// Its value.
        value: f64,
    },

    /// A standard deviation is negative.
    #[error("{name} is {value}: use a number that is 0 or greater")]
    Negative {
        /// Which number, such as `sigma`.
        name: &'static str,
        /// Its value.
        value: f64,
    },

    /// A pair of mixing factors would make a pair of matrices zero.
    #[error(
        "alpha and beta are both 0: both matrices would be zero and no gradient could move them; \
         make one of the two non-zero"
    )]
    ZeroMix,

    /// The rank asked for exceeds the width.
    #[error(
        "head width {head_width} is not between 1 and width {width}: use one that divides {width}"
    )]
    HeadWidth {
        /// Width of one head.
        head_width: usize,
        /// Width of the network.
        width: usize,
    },

    /// A tensor that must be a floating-point matrix is not.
    #[error(
        "expected an f32 or f64 matrix of shape (rows, columns), found {dtype:?} of shape {shape:?}"
    )]
    NotAMatrix {
        /// Shape found.
        shape: Vec<usize>,
        /// Element type found.
        dtype: candle_core::DType,
    },

    /// A name that does not belong to the list of choices.
    #[error("unknown {what} `{found}`: use one of {expected}")]
    UnknownName {
        /// The kind of name, such as `method`.
        what: &'static str,
        /// The name given.
        found: String,
        /// The names that exist, separated by commas.
        expected: String,
    },

    /// The singular value decomposition did not converge.
    #[error(
        "the singular value decomposition of a {width} x {width} matrix did not converge: \
         use another seed, or smaller alpha and beta"
    )]
    NoConvergence {
        /// Rows and columns of the matrix.
        width: usize,
    },

    /// A method that takes weights over was given too few models, or too many.
    #[error(
        "{method} starts from {expected} trained model(s), found {found}: \
         name the model to start from with --from, for a method that takes one"
    )]
    Donors {
        /// The method's name.
        method: &'static str,
        /// The number of models that the method starts from.
        expected: usize,
        /// The number given.
        found: usize,
    },

    /// A donor lacks a part that the target needs.
    #[error(
        "{method}: the donor's {size} is {donor}, less than the target's {target}: \
         take a donor with at least {target}, or make the target no larger than {donor}"
    )]
    DonorTooSmall {
        /// The method's name.
        method: &'static str,
        /// Which size, such as `width`.
        size: &'static str,
        /// The donor's.
        donor: usize,
        /// The target's.
        target: usize,
    },

    /// A method that grows was given a donor that is larger than the target.
    #[error(
        "{method}: the donor's {size} is {donor}, more than the target's {target}: \
         take a donor with at most {target}, or make the target at least {donor}"
    )]
    DonorTooLarge {
        /// The method's name.
        method: &'static str,
        /// Which size, such as `width`.
        size: &'static str,
        /// The donor's.
        donor: usize,
        /// The target's.
        target: usize,
    },

    /// A method that takes whole layers over was given a donor of another width.
    #[error(
        "{method}: the donor's {size} is {donor}, the target's {target}, and whole layers fit only \
         where the two are equal: make the target's {size} {donor}"
    )]
    DonorDiffers {
        /// The method's name.
        method: &'static str,
        /// Which size, such as `width`.
        size: &'static str,
        /// The donor's.
        donor: usize,
        /// The target's.
        target: usize,
    },

    /// There is not one similarity for each layer of the donor.
    #[error(
        "found {found} similarities for the {expected} layers of the donor: \
         give one number for each (--similarity X,X,..)"
    )]
    Similarities {
        /// The number given.
        found: usize,
        /// The number of the donor's layers.
        expected: usize,
    },

    /// A number outside its range.
    #[error("{name} is {value}: use {expected}")]
    OutOfRange {
        /// Which number, such as `gamma`.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The range that would do.
        expected: String,
    },

    /// A growth operator lacks a tensor, or has one of another shape.
    #[error(
        "the growth operator's {name} has shape {found:?}, expected {expected:?}: \
         take the operator that `operator_start` makes for these two shapes"
    )]
    Operator {
        /// The tensor's name.
        name: String,
        /// Its shape; empty if it is not there.
        found: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },

    /// A method that looks at images was given none.
    #[error(
        "{method} looks at some images, and there are none: name them (--data D); it needs no labels"
    )]
    NoImages {
        /// The method's name.
        method: &'static str,
    },

    /// A method was asked for something that a network does not have.
    #[error("{network} has no {part}: {remedy}")]
    Lacks {
        /// The kind of network, such as `a ConvMixer`.
        network: &'static str,
        /// The missing part.
        part: &'static str,
        /// The remedy.
        remedy: &'static str,
    },

    /// The target would have a distillation token.
    #[error(
        "the target has a distillation token, which no start fills: use a shape without one \
         (distilled = false)"
    )]
    Distilled,

    /// Sizes or weights that do not fit a vision transformer.
    #[error(transparent)]
    Shape(#[from] wave_models::ShapeError),

    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

/// Passes a finite number on.
///
/// # Errors
/// Naming another.
pub fn finite(name: &'static str, value: f64) -> Result<f64, InitError> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err(InitError::NotFinite { name, value })
    }
}

/// Passes a finite number of 0 or more on.
///
/// # Errors
/// Naming another.
pub(crate) fn not_negative(name: &'static str, value: f64) -> Result<f64, InitError> {
    match finite(name, value)? < 0.0 {
        true => Err(InitError::Negative { name, value }),
        false => Ok(value),
    }
}

/// Looks a name up among the choices.
///
/// # Errors
/// Naming all of them.
pub fn by_name<T: Copy>(
    what: &'static str,
    text: &str,
    choices: &[(&str, T)],
) -> Result<T, InitError> {
    let found = choices.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, choice)| *choice)
        .ok_or_else(|| InitError::UnknownName {
            what,
            found: text.to_owned(),
            expected: choices
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// Gives an enumeration the list of its choices, and their names on the command line and in recipes.
macro_rules! named {
    ($kind:ident, $what:literal, $($name:literal => $choice:ident),+) => {
        impl $kind {
            /// Every choice, in the order of its name in messages and tables.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$choice),+];

            /// The name on the command line and in recipes.
            pub const fn name(self) -> &'static str {
                match self {
                    $($kind::$choice => $name),+
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = $crate::InitError;

            fn from_str(text: &str) -> Result<Self, $crate::InitError> {
                $crate::error::by_name($what, text, &$kind::ALL.map(|c| (c.name(), c)))
            }
        }
    };
}
pub(crate) use named;
