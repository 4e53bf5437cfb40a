//! Settings that are one of a few words. Variants have no documentation of their own: clap would print
//! it, and separate all flags in the help by blank lines.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Declares choices: their words are the variants' names in kebab case, on the command line and in
/// recipes.
macro_rules! choices {
    ($($(#[doc = $doc:literal])* $name:ident { $($variant:ident),+ })+) => {$(
        $(#[doc = $doc])*
        #[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($variant),+ }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                let value = self.to_possible_value();
                f.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
        }
    )+};
}

choices! {
    /// Learning-rate schedule: a warm-up and a half cosine, or straight lines to the peak at 2/5,
    /// a twentieth of it at 4/5, and 0.
    LrSchedule { Cosine, Triangular }
    /// Weights that a training writes: the last, or those with the best test.
    Keep { Last, Best }
    /// Precision of the blocks' matrix products.
    PrecisionChoice { F32, Bf16, Auto }
    /// The files of a model directory: timm's; transformers' native ViT; or timm's, and the same model as
    /// a graph.
    Format { Timm, Transformers, Onnx }
    /// Distillation target: the ancestor's class scores, or its classifier's input.
    AncestorOutput { Scores, Features }
    /// Template initialiser: the attention of two mimetic layers; independent numbers; or the ancestor's own weights.
    TemplateStart { Mimetic, Xavier, Ancestor }
    /// Scaler initialiser of a condensation: from one half of the templates at the first layer to the other
    /// half at the last; a base and a slope, as TELG; one block for all layers, as Share Init; or normal
    /// numbers of variance 1 / N.
    ScalerStart { Ramp, Telg, Share, Random }
    /// Trained parameters of a condensation: templates and scalers (the factors of weights), or composed weights.
    Trained { Factors, Weights }
    /// Scaler initialiser of an expansion: interpolated from the bank, or random.
    FirstScalers { Bank, Random }
    /// Initialiser of the blocks' norms and biases in an expansion.
    Fill { Inherit, Mimetic, Timm }
    /// Workload of `wave speed`.
    SpeedMode { Train, Forward, Condense }
    /// Architecture of a new model.
    Architecture { Vit, Convmixer, Convnext }
    /// Position embeddings of a new model.
    PositionKind { Learned, Sinusoidal }
    /// Activation after the convolutions of a ConvMixer.
    MixerActivation { Gelu, Relu }
    /// Target of LayerScale.
    Scaled { Branch, Skip }
}
