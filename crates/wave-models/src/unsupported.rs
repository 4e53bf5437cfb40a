//! Detection of unsupported features in other projects' networks, by names, tensors and arguments: features
//! that no network here has, and ones that [`crate::vit`] lacks. This runs before any shape is checked, so
//! that the error names the actual cause.

use crate::check::unsupported;
use crate::{ShapeError, Weights};
use serde_json::{Map, Value};

/// Architectures by the prefix of timm's name or `model_type`, in the words of their papers.
const ARCHITECTURES: [(&str, &str); 22] = [
    ("swinv2", "a Swin transformer V2"),
    ("swin", "a Swin transformer"),
    ("maxxvit", "a MaxxViT"),
    ("maxvit", "a MaxViT"),
    ("coatnet", "a CoAtNet"),
    ("coat_", "a CoaT"),
    ("cait", "a CaiT"),
    ("xcit", "an XCiT"),
    ("pvt", "a pyramid vision transformer"),
    ("mvit", "a multiscale vision transformer"),
    ("volo", "a VOLO"),
    ("mixer_", "an MLP-Mixer"),
    ("mobilevit", "a MobileViT"),
    ("mobilenetv1", "a MobileNet"),
    ("mobilenetv2", "a MobileNet V2"),
    ("mobilenetv3", "a MobileNet V3"),
    ("mobilenet_", "a MobileNet"),
    ("naflexvit", "a NaFlexViT"),
    ("efficientvit_b", "an EfficientViT of MIT"),
    ("efficientvit_l", "an EfficientViT of MIT"),
    ("resnext", "a ResNeXt"),
    ("regnet", "a RegNet"),
];

/// Tensors that identify a supported variant of the vision transformer ([`crate::transformer`]): the end of a
/// name, and its feature.
const PARTS: [(&str, &str); 16] = [
    ("reg_token", "register tokens"),
    ("ls1.gamma", "LayerScale"),
    (".gamma_1", "LayerScale"),
    ("attn.q_norm.weight", "norms of queries and keys (QK-norm)"),
    ("norm_pre.weight", "a norm before the blocks (pre_norm)"),
    ("attn.norm.weight", "a norm inside attention"),
    ("mlp.norm.weight", "a norm inside the MLP"),
    ("mlp.fc1_g.weight", "gated MLPs (SwiGLU)"),
    ("attn.q_bias", "biases of queries and values only (BEiT)"),
    (
        "attn.q_proj.weight",
        "separate projections to queries, keys and values",
    ),
    ("relative_position_bias_table", "relative position biases"),
    ("attn_pool.q.weight", "attention pooling"),
    ("attn_pool.latent", "attention pooling"),
    ("attn_pool.kv.weight", "attention pooling"),
    ("attn_pool.proj.weight", "attention pooling"),
    ("attn_pool.mlp.fc1.weight", "attention pooling"),
];

/// Tensors that identify an unsupported feature.
const ABSENT: [(&str, &str); 9] = [
    (
        "embeddings.register_tokens",
        "register tokens under names other than timm's",
    ),
    (
        "layer_scale1.lambda1",
        "LayerScale under a name other than timm's",
    ),
    (
        "mlp.w12.weight",
        "gated MLPs (SwiGLU) under a name other than timm's",
    ),
    ("rel_pos_h", "relative position biases by row and column"),
    (
        "patch_embed.backbone.conv.weight",
        "a convolutional backbone before its patches",
    ),
    (
        "patch_embed.backbone.stem.conv.weight",
        "a convolutional backbone before its patches",
    ),
    ("attns.0.qkv.weight", "parallel branches"),
    (
        "in_proj.weight",
        "attention and MLP in one projection (parallel scaling)",
    ),
    ("rope.periods", "rotary periods stored as weights"),
];

/// First tensors of the known networks.
const FIRSTS: [&str; 6] = [
    "patch_embed.proj.weight",
    "stem.0.weight",
    "stem.weight",
    "stem.conv1.linear.weight",
    "conv1.weight",
    "conv_stem.weight",
];

/// Modules of a block that always have a bias here, and the name of the variant without.
const WITHOUT_BIAS: [(&str, &str); 3] = [
    (
        "norm1",
        "norms without a bias (RMSNorm, or norms with norm_bias)",
    ),
    (
        "attn.proj",
        "attention output projections without a bias (proj_bias)",
    ),
    ("mlp.fc1", "MLPs without biases (proj_bias)"),
];

/// Refuses networks of unsupported families.
///
/// `name` is timm's architecture or transformers' `model_type`, or empty.
pub(crate) fn check(name: &str, weights: &Weights) -> Result<(), ShapeError> {
    let mut architectures = ARCHITECTURES.iter();
    if let Some((_, kind)) = architectures.find(|(start, _)| name.starts_with(start)) {
        return Err(unsupported(name, &format!("it is {kind}"), "by its name"));
    }
    // `module.` and similar prefixes are already removed; others may hold a part of more than one network.
    let first = weights
        .keys()
        .next()
        .and_then(|first| first.split_once('.'));
    if let Some((before, _)) = first
        && weights
            .keys()
            .all(|name| name.starts_with(&format!("{before}.")))
        && FIRSTS
            .iter()
            .any(|first| weights.contains_key(&format!("{before}.{first}")))
    {
        let what = format!(
            "all tensor names start with `{before}.`; save the weights without this prefix"
        );
        return Err(unsupported(name, &what, "by the names of its tensors"));
    }
    let has = |part: &str| weights.keys().any(|name| name.contains(part));
    if has("layers.0.blocks.0.attn.relative_position_bias_table") {
        let found = "by its relative_position_bias_table";
        return Err(unsupported(name, "it is a Swin transformer", found));
    }
    Ok(())
}

/// Refuses a ConvNeXt with custom sizes whose blocks or widths cannot be trained.
pub(crate) fn check_stages(
    name: &str,
    args: &Map<String, Value>,
    weights: &Weights,
) -> Result<(), ShapeError> {
    let block = |part: &str| weights.get(&format!("stages.0.blocks.0.{part}"));
    let matrix = block("mlp.fc1.weight").is_none_or(|t| t.rank() != 4);
    for (odd, what) in [
        (
            block("mlp.grn.weight").is_some(),
            "it has the norms of a ConvNeXt V2",
        ),
        (block("gamma").is_none(), "it has no layer scales"),
        (!matrix, "it has convolutional MLPs (conv_mlp)"),
    ] {
        if odd {
            let supported = "only sizes registered in timm are supported";
            let what = format!("{what} at custom sizes; {supported}");
            return Err(unsupported(name, &what, "dims in its config.json"));
        }
    }
    let widths = args.get("dims").and_then(Value::as_array);
    let widths = widths.into_iter().flatten().filter_map(Value::as_u64);
    let widths: Vec<u64> = widths.collect();
    let doubled = |pair: &[u64]| pair[0].checked_mul(2) == Some(pair[1]);
    if widths.len() == 4 && widths.windows(2).all(doubled) {
        return Ok(());
    }
    let what = format!(
        "its stages have the widths {}; only four widths, each twice the one before, are supported",
        args["dims"]
    );
    Err(unsupported(name, &what, "dims in its config.json"))
}

/// Refuses images and patches that are not square.
pub(crate) fn check_square(name: &str, args: &Map<String, Value>) -> Result<(), ShapeError> {
    for (key, what) in [
        ("img_size", "images"),
        ("image_size", "images"),
        ("patch_size", "patches"),
    ] {
        let pair = args.get(key).and_then(Value::as_array);
        if let Some([height, width]) = pair.map(Vec::as_slice)
            && height != width
        {
            let size = format!("{height} x {width} pixels");
            let what = format!("it takes {what} of {size}; only square ones are supported");
            return Err(unsupported(
                name,
                &what,
                &format!("{key} in its config.json"),
            ));
        }
    }
    Ok(())
}

/// The feature of a vision transformer that [`crate::vit`] lacks, and the evidence for it.
pub(crate) fn variant(
    name: &str,
    args: &Map<String, Value>,
    weights: &Weights,
) -> Result<Option<(String, String)>, ShapeError> {
    let has = |part: &str| weights.keys().any(|name| name.contains(part));
    if !has("patch_embed.proj.weight") && !has("patch_embed.backbone.") {
        return Ok(None);
    }
    if let Some((what, found)) = of_tensors(weights, &ABSENT) {
        return Err(unsupported(name, &format!("it has {what}"), &found));
    }
    for (module, what) in WITHOUT_BIAS {
        let has = |part: &str| weights.contains_key(&format!("blocks.0.{module}.{part}"));
        if has("weight") && !has("bias") {
            let found = format!("blocks.0.{module}.bias is missing");
            return Err(unsupported(name, &format!("it has {what}"), &found));
        }
    }
    Ok(of_tensors(weights, &PARTS).or_else(|| of_arguments(args, weights)))
}

/// The feature shown by the first matching tensor, and that tensor.
fn of_tensors(weights: &Weights, parts: &[(&str, &str)]) -> Option<(String, String)> {
    weights.keys().find_map(|name| {
        let (_, what) = parts.iter().find(|(end, _)| name.ends_with(end))?;
        Some(((*what).to_owned(), format!("tensor {name}")))
    })
}

/// The feature shown by arguments or by sizes of common tensors.
fn of_arguments(args: &Map<String, Value>, weights: &Weights) -> Option<(String, String)> {
    let flag = |key: &str| args.get(key).and_then(Value::as_bool).unwrap_or(false);
    let number = |key: &str| args.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    let said = |key: &str, what: &str| Some((what.to_owned(), format!("{key} in its config.json")));
    let class_token = weights.contains_key("cls_token");
    if number("reg_tokens") > 0.0 || number("num_register_tokens") > 0.0 {
        return said("reg_tokens", "register tokens");
    }
    if number("init_values") > 0.0 {
        return said("init_values", "LayerScale");
    }
    for (key, what) in [
        ("qk_norm", "norms of queries and keys (QK-norm)"),
        ("pre_norm", "a norm before the blocks (pre_norm)"),
        (
            "no_embed_class",
            "a class token without a position (no_embed_class)",
        ),
        ("scale_attn_norm", "a norm inside attention"),
        ("scale_mlp_norm", "a norm inside the MLP"),
    ] {
        if flag(key) {
            return said(key, what);
        }
    }
    for key in ["act_layer", "hidden_act"] {
        if let Some(found @ ("gelu_tanh" | "gelu_pytorch_tanh" | "gelu_new" | "quick_gelu")) =
            text(key)
        {
            let what = format!("the activation {found} (an approximation of GELU)");
            return said(key, &what);
        }
    }
    if let Some(found @ ("map" | "max" | "avgmax" | "")) = text("global_pool") {
        return said("global_pool", &format!("the pooling {found:?}"));
    }
    let mean_pooled = weights.contains_key("fc_norm.weight") || text("global_pool") == Some("avg");
    if class_token && mean_pooled {
        let what = "a class token beside mean pooling";
        return Some((what.into(), "cls_token, and global_pool or fc_norm".into()));
    }
    if class_token
        && let Some([_, positions, _]) = weights.get("pos_embed").map(|t| t.dims())
        && positions.isqrt().pow(2) == *positions
        && *positions > 1
    {
        let what = "a class token without a position (no_embed_class)";
        let found = format!("pos_embed has {positions} positions, one for each patch");
        return Some((what.into(), found));
    }
    if !class_token && weights.contains_key("norm.weight") {
        let what = "a norm before its mean pooling";
        return Some((what.into(), "tensor norm.weight".into()));
    }
    if args.get("final_norm") == Some(&Value::Bool(false)) {
        return said("final_norm", "no norm after the blocks");
    }
    for (name, what) in [
        ("pos_embed", "no learned positions"),
        (
            "blocks.0.attn.qkv.bias",
            "no biases for queries, keys and values",
        ),
        ("head.weight", "no classifier"),
        ("patch_embed.proj.bias", "a patch embedding without a bias"),
    ] {
        if !weights.contains_key(name) {
            return Some((what.into(), format!("{name} is missing")));
        }
    }
    None
}

#[cfg(test)]
#[path = "unsupported_tests.rs"]
mod tests;
