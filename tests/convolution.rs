//! ConvMixers and ConvNeXts: their starts, frozen filters, stages, dilation, pictures.

use crate::support::{Place, SHAPES, files, values};
use serde_json::json;
use wave_models::Weights;

const SIZE: &str = "--data shapes --depth 2 --width 16 --kernel 5 --patch 7";

fn weights(place: &Place, dir: &str) -> Weights {
    place.tensors(&format!("{dir}/model.safetensors"))
}

#[test]
fn filters_start_in_every_way_and_stay_where_they_are_frozen() {
    let place = Place::new();
    for (arch, filters) in [
        ("convmixer", ".fn.0.weight"),
        ("convnext", ".conv_dw.weight"),
    ] {
        place.json(&format!("init default --arch {arch} {SIZE} --out {arch}"));
        let tuned = format!("{arch}-f");
        place.json(&format!(
            "finetune {arch} {SHAPES} --steps 4 --freeze {filters} --out {tuned}"
        ));
        let after = weights(&place, &tuned);
        for (name, t) in &weights(&place, arch) {
            let frozen = name.ends_with(filters);
            assert_eq!(values(t) == values(&after[name]), frozen, "{name}");
        }
    }
    let starts = format!(
        "
        covariance --arch convmixer {SIZE}
        covariance --arch convnext {SIZE} --mlp-mean eq2=0.5 --mlp-ratio 2
        covariance-transfer --arch convmixer --from convmixer-f --depth 3 --width 8 --kernel 7
        covariance-transfer --arch convnext --from convnext-f --depth 3 --width 8 --factored true
        covariance-transfer --arch convnext --from convmixer-f --depth 1 --width 8 --patch 4
        filters --arch convmixer --from convmixer-f --depth 2 --width 12
        filters --arch convmixer --from convnext-f --depth 2 --width 12
        "
    );
    for args in starts.trim().lines() {
        let made = place.json(&format!("init {args} --out made"));
        let taken = made["transferred_parameters"].as_u64().unwrap();
        assert_eq!(taken > 0, args.contains("--from"), "{args}");
        place.json("eval made --data shapes --test-limit 8");
        std::fs::remove_dir_all(place.path("made")).unwrap();
    }
}

#[test]
fn stages_outlive_training_and_new_classes() {
    let place = Place::new();
    let size = "--arch convnext --data shapes --stages 1,1,2,1 --width 8 --kernel 3 --patch 1";
    place.json(&format!("init covariance {size} --sawtooth true --out m"));
    place.json(&format!("init covariance {size} --out smooth"));
    let (saw, smooth) = (weights(&place, "m"), weights(&place, "smooth"));
    for (name, t) in &saw {
        // Halved from the second stage on.
        let later = name.ends_with(".conv_dw.weight") && !name.starts_with("stages.0.");
        assert_eq!(values(t) != values(&smooth[name]), later, "{name}");
    }
    let training = format!("{SHAPES} --steps 4 --lr-schedule triangular");
    let tuned = place.json(&format!(
        "finetune m {training} --freeze .conv_dw.weight --out f"
    ));
    assert!(tuned["top1"].is_f64());
    let found = place.config("f");
    assert_eq!(found["architecture"], "convnext_tiny");
    assert_eq!(found["model_args"]["depths"], json!([1, 1, 2, 1]));
    assert_eq!(found["model_args"]["dims"], json!([8, 16, 32, 64]));
    place.json("inspect f --plots p");
    let from = "--from f --stages 1,1,1,1 --width 4 --kernel 5 --patch 1";
    place.json(&format!(
        "init covariance-transfer --arch convnext {from} --out t"
    ));
    place.json("eval t --data shapes --test-limit 8");
    place.refuses(
        "FLAGS --arch convnext --data shapes --width 8 --out o",
        "
        init covariance --stages 1,1,2 => four numbers
        init covariance --stages 1,1,2,1 --depth 4 => 4 with stages 1,1,2,1
        init covariance --depth 4 --sawtooth true => --sawtooth does not apply
        init covariance --stages 1,1,2,1 --patch 7 => one pixel must remain
        ",
    );
    let wrong = format!("finetune m {training} --warmup-epochs 1 --out w");
    place.refused(&wrong, &["--warmup-epochs does not apply"]);
    let wrong = format!("finetune m {training} --drop-path 0.1 --out w");
    place.refused(&wrong, &["drop_path applies to transformers"]);
    let muon = format!("finetune m {training} --freeze .conv_dw.weight --muon true --out muon");
    place.json(&muon);
    let (by_muon, by_adamw) = (weights(&place, "muon"), weights(&place, "f"));
    let matrix = "stages.2.blocks.1.mlp.fc1.weight";
    assert!(values(&by_muon[matrix]) != values(&by_adamw[matrix]));
}

#[test]
fn dilation_and_activation_outlive_training() {
    let place = Place::new();
    let size = "--data shapes --depth 4 --width 8 --kernel 3 --patch 4";
    place.json(&format!(
        "init default --arch convmixer {size} --dilation E --activation relu --out m"
    ));
    place.json(&format!("finetune m {SHAPES} --steps 2 --out f"));
    let config = place.config("f");
    // timm registers one ConvMixer with rectifiers.
    assert_eq!(config["architecture"], "convmixer_768_32");
    assert_eq!(config["model_args"]["dilation"], json!([1, 1, 2, 3]));
    let loss = || place.json("eval f --data shapes --test-limit 64")["loss"].clone();
    let trained = loss();
    // Files written before dilation existed have none.
    let mut plain = config["model_args"].clone();
    plain.as_object_mut().unwrap().remove("dilation");
    for (key, other) in [
        ("architecture", json!("convmixer_1536_20")),
        ("model_args", plain),
    ] {
        place.configure("f", |config| config[key] = other);
        assert_ne!(loss(), trained, "{key}");
        place.write("f/config.json", config.to_string());
    }
    let wrong = "init timm --depth 1 --width 8 --activation relu --out w";
    place.refused(wrong, &["--activation does not apply to --arch vit"]);
}

#[test]
fn filters_and_patches_are_drawn() {
    let place = Place::new();
    for arch in ["convmixer", "convnext"] {
        place.json(&format!(
            "init covariance --arch {arch} {SIZE} --out {arch}"
        ));
        let found = place.json(&format!(
            "inspect {arch} --plots p-{arch} --html {arch}.html"
        ));
        assert_eq!((&found["depth"], &found["width"]), (&json!(2), &json!(16)));
        let pictures = files(&place.path(&format!("p-{arch}")));
        for name in ["filters.png", "patch-embedding.png"] {
            let picture = image::load_from_memory(&pictures[name]).unwrap();
            assert!(picture.width() > 16 && picture.height() > 16, "{name}");
        }
        let page = place.text(&format!("{arch}.html"));
        assert!(page.contains("Depthwise filters") && page.contains("Patch embedding"));
    }
}
