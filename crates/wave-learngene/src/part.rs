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

    /// The name of the weight of all layers stacked, `(layers, rows, columns)`: timm's without the number of the layer.
    pub fn stacked_name(self) -> &'static str {
        match self {
            Part::Qkv => "blocks.attn.qkv.weight",
            Part::Proj => "blocks.attn.proj.weight",
            Part::Fc1 => "blocks.mlp.fc1.weight",
            Part::Fc2 => "blocks.mlp.fc2.weight",
        }
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
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
