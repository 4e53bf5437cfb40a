//! `config.json` and `preprocessor_config.json` of model and template directories, in timm's layout
//! and transformers', beside the weights of a very small transformer.
#![no_main]

use candle_core::{DType, Device, Tensor};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use wave::context::Context;
use wave::model::Model;
use wave_models::vit::VitShape;

fn write_weights() {
    let shape = VitShape {
        image_size: 4,
        channels: 1,
        patch: 2,
        depth: 1,
        width: 4,
        heads: 2,
        mlp_ratio: 2.0,
        classes: 2,
        ..VitShape::default()
    };
    let zeros = |dims: Vec<usize>| Tensor::zeros(dims, DType::F32, &Device::Cpu);
    let weights = shape.parameters().into_iter();
    let weights: BTreeMap<_, _> = weights
        .map(|(name, dims)| (name, zeros(dims).expect("memory")))
        .collect();
    for name in ["model.safetensors", "templates.safetensors"] {
        let path = wave_fuzz::directory().join(name);
        wave_hub::write_tensors(&path, &weights, &BTreeMap::new()).expect("a file");
    }
}

fuzz_target!(init: write_weights(), |data: &[u8]| {
    wave_fuzz::file("config.json", data);
    wave_fuzz::file("preprocessor_config.json", data);
    let dir = wave_fuzz::directory();
    let _ = wave_hub::directory_kind(dir);
    let _ = wave_hub::read_templates(dir);
    let _ = wave_hub::read_preprocessing(dir);
    let _ = Model::read(dir, &Context::default());
});
