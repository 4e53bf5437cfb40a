//! The two orders of a Kronecker product.

/// The order of the factors of a Kronecker product of scaler `S` and template `T`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kronecker {
    /// `S (x) T`: whole templates laid side by side, each weighted by one scaler, as in the paper's
    /// "concatenating and weighting". Keeps q, k, v and the heads in contiguous rows.
    #[default]
    Tile,
    /// `T (x) S`, as the paper prints equation 3. Block rows interleave, and with them the rows of
    /// q, k and v.
    Interleave,
}

impl Kronecker {
    /// The name in recipes and files: `"tile"` or `"interleave"`.
    pub fn name(self) -> &'static str {
        match self {
            Kronecker::Tile => "tile",
            Kronecker::Interleave => "interleave",
        }
    }

    /// The order of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Kronecker> {
        [Kronecker::Tile, Kronecker::Interleave]
            .into_iter()
            .find(|order| order.name() == name)
    }
}
