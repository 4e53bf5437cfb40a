//! Names, shapes, distributions and seeds of whole networks.

use super::*;
use crate::mean_shift::MlpMean;
use crate::testing::{assert_same, changed, values};
use proptest::prelude::*;

/// 4 x 4 patches and 200 hidden channels.
const ODD: VitShape = VitShape {
    image_size: 28,
    channels: 3,
    patch: 7,
    depth: 5,
    width: 160,
    heads: 5,
    mlp_ratio: 1.25,
    classes: 11,
    class_token: false,
    distilled: false,
    norm_eps: 1e-6,
};
const SMALL: VitShape = VitShape {
    depth: 2,
    width: 24,
    heads: 3,
    ..ODD
};

fn bits(weights: &Weights) -> Vec<(&str, Vec<u32>)> {
    let bits = |t: &Tensor| values(t).into_iter().map(f32::to_bits).collect();
    weights
        .iter()
        .map(|(name, t)| (name.as_str(), bits(t)))
        .collect()
}

fn std(tensor: &Tensor) -> f64 {
    let x = values(tensor);
    (x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64).sqrt()
}

fn largest(tensor: &Tensor) -> f64 {
    let values = values(tensor).into_iter();
    values.fold(0.0, |a, x| f64::from(x.abs()).max(a))
}

/// Initialises `dims` by `method` and asserts the standard deviations of the named tensors to within 5%.
fn check_stds(method: DirectMethod, expected: &[(&str, f64)]) {
    let weights = initialise(&ODD, method, &Choices::default(), 0).unwrap();
    for (name, expected) in expected {
        let ratio = std(&weights[*name]) / expected;
        assert!((ratio - 1.0).abs() < 0.05, "{method:?} {name}: {ratio}");
    }
    for (name, tensor) in &weights {
        let constant = match name {
            n if n.contains("norm") && n.ends_with("weight") => 1.0,
            n if n == "patch_embed.proj.bias" && method != DirectMethod::He => continue,
            n if n.ends_with("bias") => 0.0,
            _ => continue,
        };
        let found = values(tensor);
        assert!(found.iter().all(|x| *x == constant), "{method:?} {name}");
    }
}

#[test]
fn matrices_have_the_standard_deviations_of_their_method() {
    let he = |inputs: f64| (2.0 / inputs).sqrt();
    let xavier = |out: f64, inp: f64| (2.0 / (out + inp)).sqrt();
    let pytorch = 1.0 / (3.0f64 * 147.0).sqrt();
    for (method, [patches, qkv, proj, fc1, fc2]) in [
        (
            DirectMethod::He,
            [he(147.0), he(160.0), he(160.0), he(160.0), he(200.0)],
        ),
        (DirectMethod::Timm, [pytorch, 0.02, 0.02, 0.02, 0.02]),
        (
            DirectMethod::Xavier,
            [
                pytorch,
                xavier(480.0, 160.0), // qkv is one matrix
                xavier(160.0, 160.0),
                xavier(200.0, 160.0),
                xavier(160.0, 200.0),
            ],
        ),
    ] {
        let expected = [
            ("patch_embed.proj.weight", patches),
            ("blocks.0.attn.qkv.weight", qkv),
            ("blocks.4.attn.proj.weight", proj),
            ("blocks.2.mlp.fc1.weight", fc1),
            ("blocks.2.mlp.fc2.weight", fc2),
            ("head.weight", 0.02),
            ("pos_embed", 0.02),
        ];
        check_stds(method, &expected);
    }
}

#[test]
fn timm_leaves_the_patch_embedding_to_pytorch() {
    let with_token = changed(ODD, |s| s.class_token = true);
    let choices = Choices::default();
    let weights = initialise(&with_token, DirectMethod::Timm, &choices, 0).unwrap();
    for name in ["patch_embed.proj.weight", "patch_embed.proj.bias"] {
        let bound = 1.0 / 147f64.sqrt();
        let found = largest(&weights[name]);
        assert!((0.95 * bound..=bound).contains(&found), "{name}: {found}");
    }
    assert!((0.8e-6..1.2e-6).contains(&std(&weights["cls_token"])));
}

#[test]
fn xavier_is_uniform() {
    let weights = initialise(&ODD, DirectMethod::Xavier, &Choices::default(), 0).unwrap();
    let found = largest(&weights["blocks.0.attn.qkv.weight"]);
    let bound = (6.0f64 / 640.0).sqrt();
    let within = 0.999 * bound..=bound * 1.000001;
    assert!(within.contains(&found), "{found}");
}

#[test]
fn mimetic_attention_lands_in_the_rows_that_timm_reads() {
    let (d, k) = (ODD.width, ODD.width / ODD.heads);
    let weights = initialise(&ODD, DirectMethod::Mimetic, &Choices::default(), 3).unwrap();
    for layer in [0, 4] {
        let qkv = &weights[&format!("blocks.{layer}.attn.qkv.weight")];
        for head in 0..ODD.heads {
            let rng = &mut of_layer(3, layer, Stream::FirstHead as u64 + head as u64);
            let (q, w) = query_key(Default::default(), d, k, (0.7, 0.7), rng).unwrap();
            assert_eq!(values(&qkv.narrow(0, head * k, k).unwrap()), values(&q));
            assert_eq!(values(&qkv.narrow(0, d + head * k, k).unwrap()), values(&w));
        }
        // proj v = (W_V W_proj)ᵀ, whose diagonal averages −0.4 with noise 0.4/sqrt(d) per entry.
        let v = qkv.narrow(0, 2 * d, d).unwrap();
        let proj = &weights[&format!("blocks.{layer}.attn.proj.weight")];
        let product: Vec<Vec<f32>> = proj.matmul(&v).unwrap().to_vec2().unwrap();
        let mean = (0..d).map(|i| product[i][i]).sum::<f32>() / d as f32;
        assert!((mean + 0.4).abs() < 0.01, "{mean}");
    }
    check_stds(
        DirectMethod::Mimetic,
        &[("blocks.0.mlp.fc1.weight", 0.02), ("head.weight", 0.02)],
    );
}

#[test]
fn mimetic_leaves_the_rest_to_timm_or_xavier() {
    let (d, zero) = (SMALL.width, (0.0, 0.0));
    for rest in [DirectMethod::Timm, DirectMethod::Xavier] {
        let plain = initialise(&SMALL, rest, &Choices::default(), 1).unwrap();
        let with = |qk, vp| {
            let choices = Choices {
                positions: Some(Positions::Learned),
                qk: Some(qk),
                vp: Some(vp),
                rest,
                ..Choices::default()
            };
            initialise(&SMALL, DirectMethod::Mimetic, &choices, 1).unwrap()
        };
        assert_eq!(bits(&with(zero, zero)), bits(&plain));

        let (qkv, proj) = ("blocks.1.attn.qkv.weight", "blocks.1.attn.proj.weight");
        let rows = |w: &Weights, from, n| values(&w[qkv].narrow(0, from, n).unwrap());
        let qk_only = with((0.7, 0.7), zero);
        assert_ne!(rows(&qk_only, 0, 2 * d), rows(&plain, 0, 2 * d));
        assert_eq!(rows(&qk_only, 2 * d, d), rows(&plain, 2 * d, d));
        assert_eq!(values(&qk_only[proj]), values(&plain[proj]));
        let vp_only = with(zero, (0.4, 0.4));
        assert_eq!(rows(&vp_only, 0, 2 * d), rows(&plain, 0, 2 * d));
        assert_ne!(rows(&vp_only, 2 * d, d), rows(&plain, 2 * d, d));
        assert_ne!(values(&vp_only[proj]), values(&plain[proj]));
    }
}

#[test]
fn a_mean_shift_touches_the_first_mlp_matrix_alone() {
    let with = |mlp_mean| {
        let choices = changed(Choices::default(), |c| c.mlp_mean = Some(mlp_mean));
        initialise(&SMALL, DirectMethod::Xavier, &choices, 0).unwrap()
    };
    let plain = with(MlpMean::None);
    for shift in [MlpMean::Eq1 { sigma: 0.5 }, MlpMean::Eq2 { b: -0.5 }] {
        for (name, tensor) in with(shift) {
            let same = values(&tensor) == values(&plain[&name]);
            assert_eq!(same, !name.ends_with("mlp.fc1.weight"), "{shift:?} {name}");
        }
    }
    let change = |layer: usize| {
        let name = format!("blocks.{layer}.mlp.fc1.weight");
        let shifted = with(MlpMean::Eq1 { sigma: 0.5 });
        values(&(&shifted[&name] - &plain[&name]).unwrap())[..24].to_vec()
    };
    assert_ne!(change(0), change(1));
}

#[test]
fn a_seed_means_the_same_bytes_at_any_thread_count_and_depth() {
    let choices = changed(Choices::default(), |c| {
        c.mlp_mean = Some(MlpMean::Eq1 { sigma: 0.5 })
    });
    for method in DirectMethod::ALL {
        let fill = |shape: &VitShape, seed| initialise(shape, method, &choices, seed).unwrap();
        let all = fill(&ODD, 7);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        let alone = pool.install(|| fill(&ODD, 7));
        assert_eq!(bits(&all), bits(&alone), "{method:?}");

        let shallow = fill(&VitShape { depth: 2, ..ODD }, 7);
        for (name, tensor) in &shallow {
            assert_same(name, tensor, &all[name]);
        }
        assert_ne!(bits(&all), bits(&fill(&ODD, 8)), "{method:?}");

        for name in ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"] {
            let layer = |n: usize| values(&all[&format!("blocks.{n}.{name}.weight")]);
            assert_ne!(layer(0), layer(1), "{method:?} {name}");
        }
        let qkv = &all["blocks.0.attn.qkv.weight"];
        let head = |n: usize| values(&qkv.narrow(0, 32 * n, 32).unwrap());
        assert_ne!(head(0), head(1), "{method:?}");
    }
}

/// Asserts that the request is refused with a message that contains every one of `words`.
fn check_refused(dims: VitShape, choices: &Choices, words: &[&str]) {
    let refused = initialise(&dims, DirectMethod::Mimetic, choices, 0);
    let message = refused.unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "`{message}` lacks `{word}`");
    }
}

#[test]
fn impossible_sizes_and_numbers_are_refused_with_a_remedy() {
    let choices = Choices::default();
    let refused = |dims: VitShape, words: &[&str]| check_refused(dims, &choices, words);
    let words = ["multiple of 4", "30", "32", "learned"];
    refused(VitShape { width: 30, ..SMALL }, &words);
    refused(VitShape { depth: 0, ..ODD }, &["depth", "is 0"]);
    refused(VitShape { classes: 0, ..ODD }, &["classes", "is 0"]);
    let large = changed(ODD, |s| (s.width, s.heads) = (1 << 16, 1));
    refused(large, &["parameters", "smaller"]);

    let refused = |change: fn(&mut Choices), words: &[&str]| {
        check_refused(SMALL, &changed(Choices::default(), change), words);
    };
    refused(|c| c.qk = Some((f64::NAN, 0.7)), &["qk alpha", "finite"]);
    let infinite = |c: &mut Choices| c.vp = Some((0.4, f64::INFINITY));
    refused(infinite, &["vp beta", "finite"]);
    let scale = |c: &mut Choices| c.position_scale = Some(f64::NAN);
    refused(scale, &["position scale", "finite"]);
    let sigma = |c: &mut Choices| c.mlp_mean = Some(MlpMean::Eq1 { sigma: -1.0 });
    refused(sigma, &["sigma is -1", "0 or greater"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_possible_size_can_be_filled(
        depth in 1usize..4, heads in 1usize..4, head_width in 1usize..9, hidden in 1usize..20,
        channels in 1usize..4, patch in 1usize..4, grid in 1usize..4, classes in 1usize..4,
        class_token: bool, method in prop::sample::select(&DirectMethod::ALL[..]), seed: u64,
    ) {
        let dims = VitShape {
            depth, width: heads * head_width, heads, image_size: grid * patch, channels, patch,
            mlp_ratio: (hidden as f64 + 0.5) / (heads * head_width) as f64, classes, class_token, ..ODD
        };
        let choices = Choices { positions: Some(Positions::Learned), ..Choices::default() };
        let weights = initialise(&dims, method, &choices, seed).unwrap();
        wave_models::vit::check_weights(&weights, &dims.parameters()).unwrap();
        prop_assert!(weights.values().all(|t| values(t).iter().all(|x| x.is_finite())));
    }
}

#[test]
fn positions_have_the_thesis_scales_and_leave_the_class_token_at_zero() {
    let found = |choices: &Choices, image_size| {
        let shape = VitShape {
            image_size,
            patch: image_size / 4,
            class_token: true,
            ..SMALL
        };
        let weights = initialise(&shape, DirectMethod::Mimetic, choices, 0).unwrap();
        values(&weights["pos_embed"])
    };
    let positions = |scale| {
        let of_patches = values(&sinusoidal_positions(4, 24, scale).unwrap());
        [vec![0.0; 24], of_patches].concat()
    };
    for (size, scale) in [(28, 2.0), (32, 2.0), (64, 2.0), (96, 1.0), (224, 1.0)] {
        assert_eq!(found(&Choices::default(), size), positions(scale), "{size}");
    }
    let choices = changed(Choices::default(), |c| c.position_scale = Some(1.0));
    assert_eq!(found(&choices, 32), positions(1.0));
}
