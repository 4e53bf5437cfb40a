//! Detection of other projects' networks that no network here is, and of vision transformers that are no plain
//! ones ([`crate::vit`]), by names, tensors and arguments. This runs before any shape is checked.

use crate::check::unsupported;
use crate::{Checked, Weights, transformer};
use serde_json::{Map, Value, json};

/// Prefixes of timm's names of unsupported networks, whose tensors may be named like a supported one's.
const ARCHITECTURES: &str = "swin maxxvit maxvit coat cait xcit pvt mvit volo mixer_ mobilevit mobilenetv1 \
     mobilenetv2 mobilenetv3 mobilenet_ naflexvit efficientvit_b efficientvit_l resnext regnet seresne res2ne \
     resnest ecaresne skresne edgenext inception_next vit_relpos vit_srelpos";

/// Parts of the names of tensors that a plain vision transformer lacks and [`crate::transformer`] has.
const PARTS: [&str; 9] = [
    "reg_token",
    "ls1.gamma",
    ".gamma_1",
    "attn.q_",
    "norm_pre.",
    "attn.norm.",
    "mlp.norm.",
    "mlp.fc1_g.",
    "relative_position_bias_table",
];

/// Arguments that show another network than a plain vision transformer if they are true, positive or one of [`WORDS`].
const ARGUMENTS: &str = "reg_tokens num_register_tokens init_values qk_norm pre_norm no_embed_class \
     scale_attn_norm scale_mlp_norm act_layer hidden_act global_pool";

/// Approximations of GELU, and poolings.
const WORDS: &str = "gelu_tanh gelu_pytorch_tanh gelu_new quick_gelu map max avgmax";

/// Refuses networks of unsupported families by timm's name, hybrids, and images and patches that are not square.
pub(crate) fn check(name: &str, args: &Map<String, Value>, weights: &Weights) -> Checked<()> {
    let named = |start: &str| name.starts_with(start);
    if ARCHITECTURES.split(' ').any(named) {
        let what = "it is none of the supported networks";
        return Err(unsupported(name, what, "by its name"));
    }
    let of_backbone = |name: &&String| name.starts_with("patch_embed.backbone.");
    if let Some(tensor) = weights.keys().find(of_backbone) {
        let what = "it is a hybrid whose patches come from a convolutional network";
        return Err(unsupported(name, what, &format!("tensor {tensor}")));
    }
    for key in ["img_size", "image_size", "patch_size"] {
        let of_patches = key == "patch_size";
        let what = if of_patches { "patches" } else { "images" };
        let pair = args.get(key).and_then(Value::as_array);
        if let Some([height, width]) = pair.map(Vec::as_slice)
            && height != width
        {
            let size = format!("{height} x {width} pixels");
            let what = format!("it takes {what} of {size}; only square ones are supported");
            let found = format!("{key} in its config.json");
            return Err(unsupported(name, &what, &found));
        }
    }
    Ok(())
}

/// Refuses a ConvNeXt with custom sizes whose blocks or widths cannot be trained.
pub(crate) fn check_stages(
    name: &str,
    args: &Map<String, Value>,
    weights: &Weights,
) -> Checked<()> {
    let block = |part: &str| weights.get(&format!("stages.0.blocks.0.{part}"));
    let matrix = block("mlp.fc1.weight").is_none_or(|t| t.rank() != 4);
    let plain = matrix && block("mlp.grn.weight").is_none() && block("gamma").is_some();
    let widths = args["dims"].as_array().map_or(&[][..], Vec::as_slice);
    let widths: Vec<u64> = widths.iter().filter_map(Value::as_u64).collect();
    let doubled = |pair: &[u64]| pair[0].checked_mul(2) == Some(pair[1]);
    let what = if name.starts_with("test_convnext") || name == "convnext_xxlarge" {
        "the name implies another activation or epsilon than that of other ConvNeXts".to_owned()
    } else if !plain {
        "it has the norms of a ConvNeXt V2, no layer scales or convolutional MLPs at custom sizes; \
         only sizes registered in timm are supported"
            .to_owned()
    } else if widths.len() != 4 || !widths.windows(2).all(doubled) {
        let dims = &args["dims"];
        format!(
            "its stages have the widths {dims}; only four widths, each twice the one before, are \
             supported"
        )
    } else {
        return Ok(());
    };
    Err(unsupported(name, &what, "dims in its config.json"))
}

/// Evidence that a vision transformer is no plain one: a tensor that one lacks or needs, an argument or the name.
pub(crate) fn variant(name: &str, args: &Map<String, Value>, weights: &Weights) -> Option<String> {
    let has = |name: &str| weights.contains_key(name);
    if !has("patch_embed.proj.weight") {
        return None;
    }
    let own = |name: &&String| {
        name.starts_with("attn_pool.") || PARTS.iter().any(|part| name.contains(part))
    };
    if let Some(name) = weights.keys().find(own) {
        return Some(format!("tensor {name}"));
    }
    let told = |key: &&str| match args.get(*key) {
        Some(Value::Bool(on)) => *on,
        Some(Value::String(word)) => word.is_empty() || WORDS.split(' ').any(|odd| odd == word),
        Some(value) => value.as_f64() > Some(0.0),
        None => false,
    };
    if let Some(key) = ARGUMENTS.split(' ').find(told) {
        return Some(format!("{key} in its config.json"));
    }
    let token = has("cls_token");
    let mean = has("fc_norm.weight") || args.get("global_pool") == Some(&json!("avg"));
    let positions = weights.get("pos_embed").map(|t| t.dims());
    let square = |n: usize| n > 1 && n.isqrt().pow(2) == n;
    let of_patches = matches!(positions, Some([_, n, _]) if square(*n));
    let final_norm = args.get("final_norm") != Some(&json!(false));
    let signs = [
        (token && mean, "cls_token, and global_pool or fc_norm"),
        (token && of_patches, "pos_embed has none for cls_token"),
        (!token && has("norm.weight"), "tensor norm.weight"),
        (!final_norm, "final_norm in its config.json"),
        (!has("pos_embed"), "no pos_embed"),
        (!has("blocks.0.attn.qkv.bias"), "no blocks.0.attn.qkv.bias"),
        (!has("head.weight"), "no head.weight"),
        (!has("patch_embed.proj.bias"), "no patch_embed.proj.bias"),
        (transformer::differs(name), "by its name"),
    ];
    let found = signs.into_iter().find(|(there, _)| *there);
    found.map(|(_, sign)| sign.to_owned())
}

#[cfg(test)]
#[path = "unsupported_tests.rs"]
mod tests;
