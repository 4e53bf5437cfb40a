//! The four weights of a transformer block that templates cover, and their sizes.

use std::fmt;
use wave_models::vit::VitShape;

/// A covered weight of a transformer block.
///
/// Norms, biases and everything outside the blocks are not covered (the paper's Table 4 finds that
/// covering norms changes little).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Query, key and value of the attention, stacked by rows: `(3 width, width)`.
    Qkv,
    /// Output projection of the attention: `(width, width)`.
    Proj,
    /// First layer of the MLP: `(hidden, width)`.
    Fc1,
    /// Second layer of the MLP: `(width, hidden)`.
    Fc2,
}

impl Part {
    /// Every part, in the order of a block's forward pass.
    pub const ALL: [Part; 4] = [Part::Qkv, Part::Proj, Part::Fc1, Part::Fc2];

    /// The name in recipes and files: `"qkv"`, `"proj"`, `"fc1"` or `"fc2"`.
    pub fn name(self) -> &'static str {
        match self {
            Part::Qkv => "qkv",
            Part::Proj => "proj",
            Part::Fc1 => "fc1",
            Part::Fc2 => "fc2",
        }
    }

    /// timm's name of this weight in one layer, such as `blocks.0.attn.qkv.weight`.
    pub fn weight_name(self, layer: usize) -> String {
        format!("blocks.{layer}.{}.weight", self.module())
    }

    /// The name of the weight of all layers stacked, `(layers, rows, columns)`, such as
    /// `blocks.attn.qkv.weight`.
    pub fn stacked_name(self) -> String {
        format!("blocks.{}.weight", self.module())
    }

    /// Rows and columns of this weight in one layer.
    pub fn rows_cols(self, shape: &VitShape) -> (usize, usize) {
        let (w, h) = (shape.width, shape.hidden());
        match self {
            Part::Qkv => (3 * w, w),
            Part::Proj => (w, w),
            Part::Fc1 => (h, w),
            Part::Fc2 => (w, h),
        }
    }

    /// The number of equal matrices stacked by rows: 3 for [`Part::Qkv`], otherwise 1.
    pub fn segments(self) -> usize {
        match self {
            Part::Qkv => 3,
            _ => 1,
        }
    }

    fn module(self) -> &'static str {
        match self {
            Part::Qkv => "attn.qkv",
            Part::Proj => "attn.proj",
            Part::Fc1 => "mlp.fc1",
            Part::Fc2 => "mlp.fc2",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_timms() {
        let names = Part::ALL.map(|part| part.weight_name(7));
        assert_eq!(
            names,
            [
                "blocks.7.attn.qkv.weight",
                "blocks.7.attn.proj.weight",
                "blocks.7.mlp.fc1.weight",
                "blocks.7.mlp.fc2.weight",
            ]
        );
        assert_eq!(Part::Fc1.stacked_name(), "blocks.mlp.fc1.weight");
    }
}
