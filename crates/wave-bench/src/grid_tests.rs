use super::*;
use candle_core::Tensor;
use std::collections::BTreeSet;
use wave_init::{Choices, Donor};
use wave_models::vit::VitShape;
use wave_stages::init;

fn method(start: &str, donor: Option<&str>) -> Method {
    let mut table = Table::from_iter([("start".to_owned(), start.into())]);
    table.extend(donor.map(|donor| ("donor".to_owned(), donor.into())));
    table.try_into().unwrap()
}

#[test]
fn methods_of_one_seed_draw_different_values() {
    let methods = ["timm", "ligo", "prune"].map(|start| method(start, Some("donor")));
    let methods = methods.into_iter().chain([method("timm", None)]);
    let seeds = methods.flat_map(|method| [0, 1, 2].map(|seed| method.fresh_seed(seed)));
    assert_eq!(seeds.collect::<BTreeSet<u64>>().len(), 12);
    assert_eq!(
        method("ligo", Some("donor")).fresh_seed(1),
        0x6624_9f51_4113_9e2b
    );
}

#[test]
fn a_fresh_head_is_not_the_first_head_of_the_donor() {
    let shape = |classes| VitShape {
        depth: 2,
        width: 16,
        heads: 2,
        image_size: 8,
        patch: 4,
        classes,
        ..VitShape::default()
    };
    let head = |start: &wave_init::Start| -> Vec<f32> {
        let rows = start.weights["head.weight"].narrow(0, 0, 3);
        rows.and_then(|t| Tensor::flatten_all(&t)?.to_vec1())
            .unwrap()
    };
    let begun = |method: &Method, classes, donor: Option<&Donor>, seed| {
        let (shape, choices) = (shape(classes), Choices::default());
        init::start(&method.start, &shape, (donor, None), &choices, seed).unwrap()
    };
    let direct = method("timm", None);
    assert_eq!(direct.fresh_seed(7), 7);
    let transferred = method("pretrained-attention", Some("timm"));
    let first = begun(&direct, 4, None, direct.fresh_seed(7));
    let donor = Donor::new(shape(4), first.weights.clone()).unwrap();
    let fresh = begun(&transferred, 3, Some(&donor), transferred.fresh_seed(7));
    assert!(head(&fresh).iter().zip(head(&first)).all(|(a, b)| *a != b));
}
