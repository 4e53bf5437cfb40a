use super::*;
use crate::attention::network::offsets;
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
        let pairs = axis
            .iter()
            .flat_map(|x| axis.iter().map(move |y| [*x, *y, -1.0]));
        let expected: Vec<[f32; 3]> = pairs.collect();
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

/// Exact: the scores of a local head are -|offset - own offset|^2, up to a constant.
#[test]
fn a_local_head_looks_at_its_tap() {
    let shape = shape(PositionalAttention::Gpsa, 9);
    let weights = made(Method::Local, &shape);
    let offsets = rows(&offsets(3, DType::F32, &Device::Cpu).unwrap());
    let heads = rows(&weights["blocks.0.attn.pos_proj.weight"]);
    for (head, w) in heads.iter().enumerate() {
        let (x, y) = (head as f32 / 3.0, head % 3);
        let (x, y) = (x.floor() - 1.0, y as f32 - 1.0);
        for o in &offsets {
            let score: f32 = (0..3).map(|i| w[i] * o[i]).sum();
            let distance = (o[0] - x).powi(2) + (o[1] - y).powi(2);
            assert_eq!(score, x * x + y * y - distance);
        }
    }
}

#[test]
fn what_is_common_starts_as_a_plain_transformer() {
    for attention in PositionalAttention::value_variants() {
        let shape = shape(*attention, 4);
        for (method, common) in [
            (Method::Default, DirectMethod::Timm),
            (Method::Mimetic, DirectMethod::Mimetic),
        ] {
            let found = made(method, &shape);
            let choices = Choices {
                positions: Some(Positions::Sinusoidal),
                qk: (*attention == PositionalAttention::Gpsa).then_some((0.0, 0.0)),
                ..Choices::default()
            };
            let plain = initialise(&shape.vit, common, &choices, 3).unwrap();
            for name in [
                "pos_embed",
                "blocks.1.attn.proj.weight",
                "blocks.0.mlp.fc1.weight",
            ] {
                assert_same(name, &found[name], &plain[name]);
            }
            let qkv = values(&plain["blocks.1.attn.qkv.weight"]);
            let found: Vec<f64> = match attention {
                PositionalAttention::Gpsa => ["qk", "v"]
                    .iter()
                    .flat_map(|part| values(&found[&format!("blocks.1.attn.{part}.weight")]))
                    .collect(),
                _ => values(&found["blocks.1.attn.qkv.weight"]),
            };
            assert_eq!(found, qkv);
        }
    }
}

/// The row of table 3.4 that adds mimetic V and projection to GPSA.
#[test]
fn gpsa_takes_mimetic_values_and_projections_alone() {
    let shape = shape(PositionalAttention::Gpsa, 4);
    let mixed = made(Method::Mimetic, &shape);
    let local = made(Method::Local, &shape);
    for same in ["qk.weight", "pos_proj.weight"] {
        let name = format!("blocks.1.attn.{same}");
        assert_same(&name, &mixed[&name], &local[&name]);
    }
    // W_V W_proj = 0.4 Z - 0.4 I: its trace is about -0.4 x 32.
    let of = |part: &str| mixed[&format!("blocks.1.attn.{part}.weight")].t().unwrap();
    let product = rows(&of("v").contiguous().unwrap().matmul(&of("proj")).unwrap());
    let trace: f32 = (0..32).map(|i| product[i][i]).sum();
    assert!((trace + 12.8).abs() < 2.0, "{trace}");
}

#[test]
fn taps_are_drawn_and_gamma_is_one() {
    let shape = shape(PositionalAttention::ConvolutionOutside, 4);
    let weights = made(Method::Default, &shape);
    let taps = values(&weights["blocks.0.attn.outside.weight"]);
    assert!(
        taps.iter().all(|t| t.abs() <= f64::from(1f32 / 3.0)) && taps.iter().any(|t| t.abs() > 0.2)
    );
    assert_ne!(taps, values(&weights["blocks.1.attn.outside.weight"]));
    assert_eq!(values(&weights["blocks.0.attn.outside.gamma"]), [1.0]);
    let error = start(Method::Local, &shape, 0).unwrap_err();
    assert!(error.to_string().contains("default, mimetic"), "{error}");
}
