use super::*;
use crate::testing::values;
use wave_models::vit::VitShape;

fn assert_same(name: &str, a: &Tensor, b: &Tensor) {
    assert_eq!(a.dims(), b.dims(), "{name}");
    assert_eq!(values(a), values(b), "{name}");
}

fn shape(attention: PositionalAttention, heads: usize) -> PositionalShape {
    let width = 8 * heads;
    PositionalShape {
        vit: VitShape {
            image_size: 12,
            channels: 1,
            patch: 4,
            depth: 2,
            width,
            heads,
            classes: 5,
            class_token: false,
            ..VitShape::default()
        },
        attention,
    }
}

fn made(method: Method, shape: &PositionalShape) -> Weights {
    let weights = start(method, shape, 3).unwrap();
    wave_models::check_weights(&weights, &shape.parameters()).unwrap();
    weights
}

fn rows(t: &Tensor) -> Vec<Vec<f32>> {
    t.to_vec2().unwrap()
}

/// Exact: the weights of timm's `GPSA.local_init`.
#[test]
fn local_heads_are_those_of_the_authors() {
    // >>> gpsa = timm.models.convit.GPSA(24, 4); gpsa.local_init(); gpsa.pos_proj.weight
    // and the same for GPSA(72, 9): all pairs of these, and -1.
    for (heads, axis) in [
        (4, &[-1.0, 1.0][..]),
        (9, &[-2.0, 0.0, 2.0]),
        (8, &[-1.0, 1.0]),
    ] {
        let row = |x: &f32| axis.iter().map(|y| [*x, *y, -1.0]).collect::<Vec<_>>();
        let expected: Vec<[f32; 3]> = axis.iter().flat_map(row).collect();
        let shape = shape(PositionalAttention::Gpsa, heads);
        let weights = made(Method::Local, &shape);
        let plain = made(Method::Default, &shape);
        for layer in 0..2 {
            let at = |part: &str| format!("blocks.{layer}.attn.{part}");
            let found = rows(&weights[&at("pos_proj.weight")]);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected);
            }
            // Heads beyond a square keep the default start: 4 of 8.
            let rest = rows(&plain[&at("pos_proj.weight")]);
            assert_eq!(found[expected.len()..], rest[expected.len()..]);
            let eye = Tensor::eye(8 * heads, DType::F32, &Device::Cpu).unwrap();
            assert_same("V", &weights[&at("v.weight")], &eye);
            assert_eq!(values(&weights[&at("gating_param")]), vec![1.0; heads]);
            assert_eq!(values(&weights[&at("pos_proj.bias")]), vec![0.0; heads]);
            for same in [at("qk.weight"), at("proj.weight")] {
                assert_same(&same, &weights[&same], &plain[&same]);
            }
        }
    }
}

#[test]
fn what_is_common_starts_as_a_plain_transformer() {
    for attention in PositionalAttention::value_variants() {
        let shape = shape(*attention, 4);
        let gpsa = *attention == PositionalAttention::Gpsa;
        for (method, common) in [
            (Method::Default, DirectMethod::Timm),
            (Method::Mimetic, DirectMethod::Mimetic),
        ] {
            let mut found = made(method, &shape);
            let qkv = "blocks.1.attn.qkv.weight";
            if gpsa {
                let parts = ["qk", "v"].map(|part| &found[&format!("blocks.1.attn.{part}.weight")]);
                let joined = Tensor::cat(&parts, 0).unwrap();
                found.insert(qkv.into(), joined);
            }
            let choices = Choices {
                positions: Some(Positions::Sinusoidal),
                qk: gpsa.then_some((0.0, 0.0)),
                ..Choices::default()
            };
            let plain = initialise(&shape.vit, common, &choices, 3).unwrap();
            let (proj, fc1) = ("blocks.1.attn.proj.weight", "blocks.0.mlp.fc1.weight");
            for name in ["pos_embed", qkv, proj, fc1] {
                assert_same(name, &found[name], &plain[name]);
            }
        }
    }
}

/// The row of table 3.4 that adds mimetic V and projection alone to GPSA.
#[test]
fn mimetic_gpsa_has_local_heads() {
    let shape = shape(PositionalAttention::Gpsa, 4);
    let mixed = made(Method::Mimetic, &shape);
    let local = made(Method::Local, &shape);
    for same in ["qk.weight", "pos_proj.weight"] {
        let name = format!("blocks.1.attn.{same}");
        assert_same(&name, &mixed[&name], &local[&name]);
    }
}

#[test]
fn taps_are_drawn_and_gamma_is_one() {
    let shape = shape(PositionalAttention::ConvolutionOutside, 4);
    let weights = made(Method::Default, &shape);
    let taps = values(&weights["blocks.0.attn.outside.weight"]);
    let most = taps.iter().fold(0f64, |most, t| most.max(t.abs()));
    assert!((0.2..=f64::from(1f32 / 3.0)).contains(&most), "{most}");
    assert_ne!(taps, values(&weights["blocks.1.attn.outside.weight"]));
    assert_eq!(values(&weights["blocks.0.attn.outside.gamma"]), [1.0]);
    let error = start(Method::Local, &shape, 0).unwrap_err();
    assert!(error.to_string().contains("default, mimetic"), "{error}");
}
