//! The values that a start takes from training, and their cost.
//!
//! Papers on learngenes compare starts by the values they carry over ("Para. (M)" in WAVE's Tables
//! 1 to 3) and the epochs spent to get them. A [`Ledger`] counts the values that a method carries, from
//! sizes alone. The [`Cost`] of a start counts the values it carried. The two are the same where donor
//! and target agree on patches, tokens and classes.

use wave_models::vit::VitShape;

/// The cost of one start beyond the training of models that exist anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Trained values that the start takes over, each counted once however often it is used.
    pub transferred: usize,
    /// Values to keep at rest so that this start can be made again.
    pub stored: usize,
    /// Epochs spent on the donor only for starts like this.
    pub extra_epochs: f64,
    /// Images seen in those epochs.
    pub images_seen: u64,
}

/// Something that a start carries over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// All of a block: 12 d² + 13 d values at the usual MLP of 4 d.
    Block,
    /// The attention's two matrices and biases in a block.
    Attention,
    /// Biases and norms of a block.
    BlockVectors,
    /// A square matrix of this side, such as a weight template.
    Matrix(usize),
    /// The position embedding.
    Positions,
    /// Patch embedding, positions, tokens before the patches, and the final norm.
    Outer,
    /// The classifier.
    Head,
}

impl Item {
    /// The number of values in a network of this shape.
    pub fn values(self, shape: &VitShape) -> usize {
        let (d, m) = (shape.width, shape.hidden());
        let patch = d * (shape.channels * shape.patch * shape.patch + 1);
        match self {
            Item::Block => 4 * d * d + 2 * d * m + Item::BlockVectors.values(shape),
            Item::Attention => 4 * d * d + 4 * d,
            Item::BlockVectors => 4 * d + 4 * d + m + d, // norms, qkv and proj, fc1, fc2
            Item::Matrix(side) => side * side,
            Item::Positions => shape.tokens() * d,
            Item::Outer => patch + Item::Positions.values(shape) + (shape.prefix() + 2) * d,
            Item::Head => shape.classes * (d + 1),
        }
    }
}

/// The pieces that a method carries over, with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Numbers of items.
    pub items: Vec<(usize, Item)>,
}

impl Ledger {
    /// A ledger of these items.
    pub fn new(items: &[(usize, Item)]) -> Self {
        Self {
            items: items.to_vec(),
        }
    }

    /// Blocks, and all that surrounds them.
    pub fn blocks(blocks: usize) -> Self {
        Self::new(&[(blocks, Item::Block), (1, Item::Outer), (1, Item::Head)])
    }

    /// WAVE: `templates` templates of this side, the biases and norms of `layers` layers, and all
    /// that surrounds the blocks. The published columns have 24 templates as wide as the network and the
    /// auxiliary's 12 layers.
    pub fn wave(templates: usize, side: usize, layers: usize) -> Self {
        Self::new(&[
            (templates, Item::Matrix(side)),
            (layers, Item::BlockVectors),
            (1, Item::Outer),
            (1, Item::Head),
        ])
    }

    /// The same without the classifier, as for another data set.
    pub fn without_head(mut self) -> Self {
        self.items.retain(|(_, item)| *item != Item::Head);
        self
    }

    /// The number of values in a network of this shape.
    pub fn values(&self, shape: &VitShape) -> usize {
        let items = self.items.iter();
        items.map(|(n, item)| n * item.values(shape)).sum()
    }

    /// The values in millions, to one digit, as papers print them.
    pub fn millions(&self, shape: &VitShape) -> String {
        millions(self.values(shape) as f64)
    }
}

/// A number of values in millions, to one digit.
pub fn millions(values: f64) -> String {
    format!("{:.1}", values / 1e6)
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
