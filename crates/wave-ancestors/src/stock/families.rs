//! The families used from candle-transformers, and their networks by timm's names.

use crate::table::Known;
use candle_core::Result;
use candle_nn::{Func, VarBuilder};
use candle_transformers::models::{convnext, fastvit, mobilenetv4, mobileone, repvgg};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    ConvNext,
    ConvNextV2,
    RepVgg,
    MobileNetV4,
    MobileOne,
    FastVit,
}

/// Families with image sizes, and the ends of timm's names of their networks.
const NETWORKS: [(Family, usize, &str); 10] = [
    (
        Family::ConvNext,
        224,
        "atto femto pico nano tiny small base large xlarge",
    ),
    (
        Family::ConvNextV2,
        224,
        "atto femto pico nano tiny small base large huge",
    ),
    (Family::RepVgg, 224, "a0 a1 a2 b0 b1 b1g4 b2 b2g4 b3 b3g4"),
    (Family::MobileNetV4, 224, "conv_small"),
    (Family::MobileNetV4, 256, "conv_medium"),
    (Family::MobileNetV4, 384, "conv_large"),
    (Family::MobileNetV4, 256, "hybrid_medium"),
    (Family::MobileNetV4, 384, "hybrid_large"),
    (Family::MobileOne, 224, "s1 s2 s3 s4"),
    (Family::FastVit, 256, "t8 t12 s12 sa12 sa24 sa36 ma36"),
];

/// All networks: timm's name, the family, and the image size.
pub(super) fn networks() -> impl Iterator<Item = (String, Family, usize)> {
    NETWORKS.into_iter().flat_map(|(family, side, ends)| {
        let network = move |end: &str| (format!("{}{end}", family.prefix()), family, side);
        ends.split(' ').map(network)
    })
}

/// The body of this network, up to pooled features. MobileNetV4's are (b, c, 1, 1), FastViT's are not pooled yet.
pub(super) fn body(name: &str, family: Family, vb: VarBuilder<'static>) -> Result<Func<'static>> {
    let size = name.strip_prefix(family.prefix()).unwrap_or(name);
    /// The body with one of these configurations, by name.
    macro_rules! one_of {
        ($size:expr, $module:ident::$body:ident, $($config:ident)+) => {
            match $size {
                $(stringify!($config) => $module::$body(&$module::Config::$config(), vb),)+
                _ => candle_core::bail!("unknown network {name}"),
            }
        };
    }
    match family {
        Family::ConvNext | Family::ConvNextV2 => one_of!(
            size, convnext::convnext_no_final_layer,
            atto femto pico nano tiny small base large xlarge huge
        ),
        Family::RepVgg => one_of!(
            size, repvgg::repvgg_no_final_layer,
            a0 a1 a2 b0 b1 b1g4 b2 b2g4 b3 b3g4
        ),
        Family::MobileNetV4 => {
            let size = size.strip_prefix("conv_").unwrap_or(size);
            one_of!(
                size, mobilenetv4::mobilenetv4_no_final_layer,
                small medium large hybrid_medium hybrid_large
            )
        }
        Family::MobileOne => one_of!(size, mobileone::mobileone_no_final_layer, s1 s2 s3 s4),
        Family::FastVit => one_of!(
            size, fastvit::fastvit_no_final_layer,
            t8 t12 s12 sa12 sa24 sa36 ma36
        ),
    }
}

impl Family {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Family::ConvNext => "a ConvNeXt",
            Family::ConvNextV2 => "a ConvNeXt V2",
            Family::RepVgg => "a RepVGG",
            Family::MobileNetV4 => "a MobileNetV4",
            Family::MobileOne => "a MobileOne",
            Family::FastVit => "a FastViT",
        }
    }

    /// Prefix of the family's names in timm.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Family::ConvNext => "convnext_",
            Family::ConvNextV2 => "convnextv2_",
            Family::RepVgg => "repvgg_",
            Family::MobileNetV4 => "mobilenetv4_",
            Family::MobileOne => "mobileone_",
            Family::FastVit => "fastvit_",
        }
    }

    /// The kernels (out, channels, k, k) of the first convolution.
    pub(super) fn first(self) -> &'static str {
        match self {
            Family::ConvNext | Family::ConvNextV2 => "stem.0.weight",
            Family::RepVgg => "stem.conv_kxk.conv.weight",
            Family::MobileNetV4 => "conv_stem.weight",
            Family::MobileOne => "stem.conv_kxk.0.conv.weight",
            Family::FastVit => "stem.0.conv_kxk.0.conv.weight",
        }
    }

    /// A tensor with as many values as there are pooled features.
    pub(super) fn last(self) -> &'static str {
        match self {
            Family::RepVgg => "stages.3.0.conv_kxk.bn.weight",
            Family::MobileOne => "stages.3.1.conv_kxk.0.bn.weight",
            Family::FastVit => "final_conv.conv_kxk.0.bn.weight",
            Family::MobileNetV4 => "norm_head.weight",
            Family::ConvNext | Family::ConvNextV2 => "head.norm.weight",
        }
    }

    /// The family that these tensors belong to.
    pub(super) fn of_weights(known: Known) -> Option<Family> {
        let second = match known.has("stages.0.blocks.0.mlp.grn.weight") {
            true => Family::ConvNextV2,
            false => Family::ConvNext,
        };
        [
            ("stages.0.blocks.0.conv_dw.weight", second),
            ("stages.0.0.conv_kxk.conv.weight", Family::RepVgg),
            ("norm_head.weight", Family::MobileNetV4),
            ("stages.0.0.conv_kxk.0.conv.weight", Family::MobileOne),
            ("final_conv.conv_kxk.0.conv.weight", Family::FastVit),
        ]
        .into_iter()
        .find(|(tensor, _)| known.has(tensor))
        .map(|(_, family)| family)
    }
}
