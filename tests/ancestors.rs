//! Every family of ancestors from its directory: understood, distilled, or refused by name.

use crate::support::{CONVMIXER, Place, RECIPE, values};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Names and shapes of weights of a network of each family, as timm has them.
const FAMILIES: &str = include_str!("../crates/wave-models/tests/fixtures/families.json");

/// A directory `dir` of a case's network with random weights, its `config.json` as timm writes it.
pub(crate) fn write(place: &Place, dir: &str, case: &str) -> Value {
    let cases: Value = serde_json::from_str(FAMILIES).unwrap();
    let of = &cases[case];
    let side = of["side"].as_u64().unwrap();
    let shapes: BTreeMap<String, Vec<usize>> =
        serde_json::from_value(of["parameters"].clone()).unwrap();
    let mut state = 1_u32;
    let weights = shapes.iter().map(|(name, dims)| {
        let n = dims.iter().product();
        let fan_in: usize = dims.iter().skip(1).product();
        let bound = (1.0 / fan_in.max(1) as f32).sqrt();
        let values: Vec<f32> = (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let u = (state >> 8) as f32 / (1 << 24) as f32; // 0 to 1
                match dims.len() {
                    1 => 0.5 + u,
                    _ => bound * (2.0 * u - 1.0),
                }
            })
            .collect();
        let tensor = Tensor::from_vec(values, dims.clone(), &Device::Cpu).unwrap();
        (name.clone(), tensor)
    });
    let weights = weights.collect();
    std::fs::create_dir_all(place.path(dir)).unwrap();
    let file = place.path(&format!("{dir}/model.safetensors"));
    wave_hub::write_tensors(&file, &weights, &BTreeMap::new()).unwrap();
    let classes = shapes.iter().find(|(name, dims)| {
        let last =
            ["head", "fc", "head.fc", "head.linear", "classifier"].map(|m| format!("{m}.weight"));
        last.contains(name) && dims.len() == 2
    });
    let config = json!({
        "architecture": of["name"],
        "num_classes": classes.map_or(0, |(_, dims)| dims[0]),
        "num_features": 0,
        "model_args": of["args"],
        "pretrained_cfg": {
            "input_size": [3, side, side], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5],
            "interpolation": "bicubic", "crop_pct": 1.0,
        },
    });
    place.write(&format!("{dir}/config.json"), config.to_string());
    config
}

/// A recipe for images of this side, and pictures in colour without labels.
fn place() -> Place {
    let place = Place::new();
    for i in 0..8_u32 {
        let pixel =
            |x: u32, y: u32| image::Rgb([x * (i % 7), y * (i % 5) + 3 * i, x * y].map(|v| v as u8));
        let picture = image::RgbImage::from_fn(40, 40, pixel);
        place.save(&format!("flat/{i:02}.png"), picture);
    }
    place
}

fn recipe(side: u64) -> String {
    format!(
        "data = 'flat'\nbatch = 4\n[condense]\ndepths = [1, 2]\nwidths = [16]\ntemplate_size = 16\n\
         steps = 2\nlr = 1e-3\nce_weight = 0\nkl_weight = 1\n[condense.auxiliary]\ndepth = 2\n\
         width = 16\nhead_width = 16\npatch = {}\nimage_size = {side}\n",
        side / 4
    )
}

/// `wave inspect` names a family and `wave condense` distils it.
#[track_caller]
fn check(place: &Place, case: &str, family: &str) -> Value {
    let config = write(place, case, case);
    let inspected = place.json(&format!("inspect {case}"));
    assert_eq!(inspected["architecture"], family, "{case}");
    let side = config["pretrained_cfg"]["input_size"][1].as_u64().unwrap();
    place.write("r.toml", recipe(side));
    let out = format!("t-{case}");
    place.json(&format!("condense r.toml --ancestor {case} --out {out}"));
    let templates = place.config(&out);
    assert_eq!(templates["classes"], 7, "{case}");
    inspected
}

#[test]
#[cfg(feature = "ancestors")]
fn convolutional_families_are_distilled() {
    let place = place();
    for (case, family) in [
        ("convnext_atto", "ConvNeXt"),
        ("convnextv2_atto", "ConvNeXt V2"),
        ("repvgg_a0", "RepVGG"),
        ("mobilenetv4_conv_small", "MobileNetV4"),
        ("mobileone_s1", "MobileOne"),
        ("fastvit_t8", "FastViT"),
    ] {
        let inspected = check(&place, case, family);
        assert_eq!(inspected["trains"], false, "{case}");
    }
}

#[test]
fn other_families_are_distilled() {
    let place = place();
    for (case, family, part) in [
        ("vgg", "VGG", ""),
        ("resnet18", "ResNet", ""),
        ("hiera", "Hiera", ""),
        ("efficientvit_m0", "EfficientViT", ""),
        ("beit", "BEiT", "relative position biases"),
        ("eva02_base", "EVA-02", "rotary positions"),
        ("dinov2", "DINOv2", "LayerScale"),
        ("dinov2_reg4", "DINOv2", "4 register tokens"),
        ("dinov3", "DINOv3", "no learned positions"),
        ("clip_quickgelu", "the tower of a CLIP", "QuickGELU"),
        ("siglip", "the tower of a SigLIP", "attention pooling"),
    ] {
        let parts = check(&place, case, family)["parts"].to_string();
        assert!(part.is_empty() || parts.contains(part), "{case}: {parts}");
    }
}

/// timm builds a DINOv3 for images of any size, and prepares them at `input_size`.
#[test]
fn rotary_positions_are_those_of_the_images() {
    let place = place();
    let logits = |dir: &str| {
        let found = place.json(&format!("predict {dir} flat/01.png"));
        found["predictions"][0]["logits"].clone()
    };
    for (case, dynamic) in [("dinov3", Value::Null), ("eva02_base", json!(true))] {
        let described = |dir: &str, built: Option<u64>, prepared: u64| {
            write(&place, dir, case);
            place.configure(dir, |config| {
                let args = &mut config["model_args"];
                args["dynamic_img_size"] = dynamic.clone();
                args["img_size"] = json!(built);
                config["pretrained_cfg"]["fixed_input_size"] = json!(true);
                config["pretrained_cfg"]["input_size"] = json!([3, prepared, prepared]);
            });
            let found = place.json(&format!("inspect {dir}"));
            assert_eq!(found["image_size"], prepared, "{dir}");
            logits(dir)
        };
        let own = write(&place, "own", case)["pretrained_cfg"]["input_size"][1].clone();
        let own = own.as_u64().unwrap();
        let (small, large) = (logits("own"), described("large", Some(own), 2 * own));
        assert_ne!(small, large, "{case}");
        if case == "dinov3" {
            // Without learned positions, the size of the weights is the one that is given.
            assert_eq!(described("bare", None, 2 * own), large);
            place.configure("large", |config| {
                config["model_args"]["dynamic_img_size"] = json!(false)
            });
            assert_eq!(logits("large"), small);
        }
    }
}

/// A DINOv2 trains: with its LayerScale and registers, and with a head where it has none.
#[test]
fn a_transformer_with_layer_scale_is_fine_tuned() {
    let place = Place::new();
    place.write_classes("two", ["x", "y"], 4, 4);
    let rest = "--data two --steps 3 --batch 3 --lr 1e-3"; // unequal classes, whose images are equal
    for (case, out) in [("dinov2_reg4", "f"), ("dinov2_headless", "g")] {
        write(&place, case, case);
        place.json(&format!(
            "finetune {case} {rest} --new-head true --out {out}"
        ));
        let found = place.json(&format!("inspect {out}"));
        assert_eq!(found["classes"], 2);
        assert!(found["parts"].to_string().contains("LayerScale"), "{found}");
        let eval = place.json(&format!("eval {out} --data two"));
        assert_eq!(eval["images"], 8);
        // The written model is read again, and trains on.
        place.json(&format!("finetune {out} {rest} --out {out}2"));
    }
    let gamma = |dir: &str| {
        let weights = place.tensors(&format!("{dir}/model.safetensors"));
        values(&weights["blocks.1.ls2.gamma"])
    };
    assert_ne!(gamma("dinov2_reg4"), gamma("f"));
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = place();
    write(&place, "headless", "dinov2_headless");
    write(&place, "dinov3", "dinov3");
    place.write("r.toml", recipe(56));
    place.refuses(
        "FLAGS --out o",
        "
        condense r.toml --ancestor headless --ce-weight 1 => ce_weight applies only to score distillation | has no classifier
        condense r.toml --ancestor headless --ancestor-output scores => a DINOv2 without a classifier
        finetune dinov3 --data shapes => a DINOv3 with | rotary positions | is inference-only
        finetune headless --data shapes --new-head true --format onnx => format = onnx | a DINOv2
        ",
    );
    place.refuses(
        "FLAGS",
        "
        eval headless --data shapes => a DINOv2 without a classifier
        predict headless flat/00.png => a DINOv2 without a classifier
        ",
    );
    for (name, said) in [
        ("maxvit_tiny_tf_224", "none of the supported networks"),
        ("resnet50d", "resnet50, resnet101"),
        ("mobileone_s0", "mobileone_s1"),
    ] {
        place.configure("headless", |config| config["architecture"] = json!(name));
        let parts = [name, "is not supported", said];
        place.refused("condense r.toml --ancestor headless --out o", &parts);
    }
}

/// A condensation whose templates hold all weights of `m`, the ViT of [`Place::with_model`].
const FROM_VIT: &str = "condense r.toml --ancestor m --kl-weight 1 --train-limit 64 --depths 1,2 \
                        --template-start ancestor --templates 24,8,32,32 --steps 1 --lr 1e-7";

/// Also if it sees its images normalised in another way.
#[test]
fn templates_can_begin_with_the_weights_of_a_vit() {
    let place = Place::with_model();
    place.configure("m", |config| {
        config["pretrained_cfg"]["mean"] = json!([0.4]);
        config["pretrained_cfg"]["std"] = json!([0.3]);
    });
    place.write("r.toml", RECIPE.replace("\ndepth = 3\n", "\ndepth = 2\n"));
    place.json(&format!("{FROM_VIT} --out t"));
    place.json("expand t --depth 2 --width 32 --out e");
    let [own, made] = ["m", "e"].map(|dir| place.tensors(&format!("{dir}/model.safetensors")));
    for name in [
        "blocks.1.attn.qkv.weight",
        "blocks.0.mlp.fc2.weight",
        "head.weight",
    ] {
        for (a, b) in values(&own[name]).iter().zip(values(&made[name])) {
            assert!((a - b).abs() < 1e-4, "{name}: {a} {b}");
        }
    }
    let [own, made] = ["m", "e"].map(|dir| {
        let found = place.json(&format!("eval {dir} --data shapes --test-limit 64"));
        found["loss"].as_f64().unwrap()
    });
    assert!((own - made).abs() < 1e-3, "{own} {made}");

    let refused = ["the auxiliary's shape", "2 layers, width 32"];
    for more in ["--out o", "--dry-run"] {
        let deeper = format!("{FROM_VIT} --set condense.auxiliary.depth=3 {more}");
        place.refused(&deeper, &refused);
        let scalers = format!("{FROM_VIT} --scaler-start ramp {more}");
        place.refused(
            &scalers,
            &["scaler_start = ramp", "template_start = ancestor"],
        );
    }
    place.json(&format!("{CONVMIXER} --data shapes --out c"));
    let other = FROM_VIT.replace("--ancestor m", "--ancestor c");
    place.refused(&format!("{other} --out o"), &["ConvMixer"]);
}
