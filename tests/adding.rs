//! Adding a method, a data source or templates from outside, as `crates/ARCHITECTURE.md` describes.

use crate::support::Place;
use candle_core::{Device, Tensor};
use std::sync::Arc;
use wave_data::{Augment, DataError, Loader, RawImage, Source, Transform};
use wave_init::{Choices, Request, Start, StartMethod};
use wave_models::NetworkError;
use wave_models::vit::VitShape;

/// An initialiser: equal values in all matrices, zero in all vectors.
const FLAT: StartMethod = StartMethod {
    name: "flat",
    description: "every matrix 0.01",
    donor: false,
    images: false,
    run: flat,
};

fn flat(request: &Request) -> Result<Start, NetworkError> {
    let fill = |(name, dims): (String, Vec<usize>)| {
        let value = if dims.len() > 1 { 0.01f32 } else { 0.0 };
        let tensor = Tensor::full(value, dims, &Device::Cpu)?;
        Ok((name, tensor))
    };
    let weights = request.shape.parameters().into_iter().map(fill);
    Ok(Start::untrained(
        weights.collect::<Result<_, NetworkError>>()?,
    ))
}

#[test]
fn an_initialiser_is_a_value() {
    let shape = VitShape::default().with_size(2, 64);
    let request = Request {
        shape: &shape,
        donor: None,
        images: None,
        choices: &Choices::default(),
        seed: 0,
    };
    let weights = FLAT.start(&request).unwrap().weights;
    wave_models::vit::check_weights(&weights, &shape.parameters()).unwrap();
}

/// A data source: grey squares, as bright as their number.
struct Squares;

impl Source for Squares {
    fn len(&self) -> usize {
        12
    }

    fn label(&self, i: usize) -> u32 {
        (i % 3) as u32
    }

    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        Ok(RawImage {
            height: 8,
            width: 8,
            channels: 1,
            pixels: vec![20 * i as u8; 64],
        })
    }
}

#[test]
fn a_data_source_is_a_trait() {
    let source: Arc<dyn Source> = Arc::new(Squares);
    let transform = Transform::new(8, vec![0.5], vec![0.5]);
    let indices = (0..12).collect();
    let loader = Loader::train(source, indices, transform, Augment::NONE, 4, None, 0).unwrap();
    assert_eq!(loader.steps_per_epoch(), 3);
    let batch = loader.batch(0).unwrap();
    assert_eq!(batch.images.len(), 4 * 64);
}

#[test]
fn a_template_set_is_a_directory() {
    let place = Place::new();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/fashion-mnist");
    for name in ["templates.safetensors", "config.json"] {
        let bytes = std::fs::read(format!("{shipped}/{name}")).unwrap();
        place.write(&format!("mine/{name}"), bytes);
    }
    let made = place.json("expand mine --depth 3 --width 128 --out model");
    assert!(made["parameters"].as_u64().unwrap() > 0, "{made}");
}
