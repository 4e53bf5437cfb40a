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

/// Networks by timm's names: their family, and their image size.
pub(super) const NETWORKS: [(&str, Family, usize); 44] = {
    use Family::*;
    [
        ("convnext_atto", ConvNext, 224),
        ("convnext_femto", ConvNext, 224),
        ("convnext_pico", ConvNext, 224),
        ("convnext_nano", ConvNext, 224),
        ("convnext_tiny", ConvNext, 224),
        ("convnext_small", ConvNext, 224),
        ("convnext_base", ConvNext, 224),
        ("convnext_large", ConvNext, 224),
        ("convnext_xlarge", ConvNext, 224),
        ("convnextv2_atto", ConvNextV2, 224),
        ("convnextv2_femto", ConvNextV2, 224),
        ("convnextv2_pico", ConvNextV2, 224),
        ("convnextv2_nano", ConvNextV2, 224),
        ("convnextv2_tiny", ConvNextV2, 224),
        ("convnextv2_small", ConvNextV2, 224),
        ("convnextv2_base", ConvNextV2, 224),
        ("convnextv2_large", ConvNextV2, 224),
        ("convnextv2_huge", ConvNextV2, 224),
        ("repvgg_a0", RepVgg, 224),
        ("repvgg_a1", RepVgg, 224),
        ("repvgg_a2", RepVgg, 224),
        ("repvgg_b0", RepVgg, 224),
        ("repvgg_b1", RepVgg, 224),
        ("repvgg_b1g4", RepVgg, 224),
        ("repvgg_b2", RepVgg, 224),
        ("repvgg_b2g4", RepVgg, 224),
        ("repvgg_b3", RepVgg, 224),
        ("repvgg_b3g4", RepVgg, 224),
        ("mobilenetv4_conv_small", MobileNetV4, 224),
        ("mobilenetv4_conv_medium", MobileNetV4, 256),
        ("mobilenetv4_conv_large", MobileNetV4, 384),
        ("mobilenetv4_hybrid_medium", MobileNetV4, 256),
        ("mobilenetv4_hybrid_large", MobileNetV4, 384),
        ("mobileone_s1", MobileOne, 224),
        ("mobileone_s2", MobileOne, 224),
        ("mobileone_s3", MobileOne, 224),
        ("mobileone_s4", MobileOne, 224),
        ("fastvit_t8", FastVit, 256),
        ("fastvit_t12", FastVit, 256),
        ("fastvit_s12", FastVit, 256),
        ("fastvit_sa12", FastVit, 256),
        ("fastvit_sa24", FastVit, 256),
        ("fastvit_sa36", FastVit, 256),
        ("fastvit_ma36", FastVit, 256),
    ]
};

/// The body of a network with this name, up to pooled features. MobileNetV4's are (b, c, 1, 1), FastViT's are
/// not pooled yet.
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

    /// The module name of the classifier.
    pub(super) fn classifier(self) -> &'static str {
        match self {
            Family::MobileNetV4 => "classifier",
            _ => "head.fc",
        }
    }

    /// A registered network with different outputs whose tensors have the same names and shapes, so that
    /// weights alone do not identify this family.
    pub(super) fn twin(self) -> Option<&'static str> {
        match self {
            Family::MobileNetV4 => Some("a mobilenetv4_conv_aa or _blur"),
            _ => None,
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
