use super::*;
use crate::testing::{assert_close, fixture, images, tensor, values, weights};

const CPU: Device = Device::Cpu;

/// The shape of `tests/fixtures/make_positional.py`.
fn shape(attention: PositionalAttention) -> PositionalShape {
    PositionalShape {
        vit: VitShape {
            image_size: 12,
            channels: 2,
            patch: 3,
            depth: 2,
            width: 12,
            heads: 3,
            mlp_ratio: 2.0,
            classes: 5,
            class_token: false,
            ..VitShape::default()
        },
        attention,
    }
}

fn shapes() -> Vec<(String, PositionalShape)> {
    let of = |attention: &PositionalAttention| {
        let name = attention.to_possible_value().unwrap();
        (name.get_name().to_owned(), shape(*attention))
    };
    PositionalAttention::value_variants()
        .iter()
        .map(of)
        .collect()
}

/// timm's and torch's logits, from `tests/fixtures/make_positional.py`.
fn expected(case: &str) -> Tensor {
    fixture("positional.safetensors", case)
}

#[test]
fn logits_equal_those_of_timm_and_torch() {
    for (name, shape) in shapes() {
        let weights = weights(&shape.parameters());
        let found = logits(&shape, &weights, &images(2, 2, 12)).unwrap();
        assert_close(&name, &found, &expected(&name), 1e-4);
    }
}

/// Exact: C is doubly block circulant. Moving both patches by the same offset, around the edges, does not
/// change it, and blocks with the same offset between rows of patches are equal.
#[test]
fn convolutions_are_doubly_block_circulant() {
    for (k, g) in [(3, 4), (2, 3), (5, 5), (1, 4), (4, 7)] {
        let c = circulant(&tensor("taps", &[2, k, k]), g).unwrap();
        let c = c.to_vec3::<f32>().unwrap();
        let at = |y: usize, x: usize| (y % g) * g + x % g;
        for (head, y, x) in (0..2).flat_map(|h| (0..g * g).map(move |i| (h, i / g, i % g))) {
            for (to_y, to_x) in (0..g * g).map(|i| (i / g, i % g)) {
                let moved = c[head][at(y + 1, x + 2)][at(to_y + 1, to_x + 2)];
                assert_eq!(c[head][at(y, x)][at(to_y, to_x)], moved);
            }
        }
        // Every row contains every tap once, and nothing else.
        let taps: f32 = values(&tensor("taps", &[2, k, k]))[..k * k]
            .iter()
            .map(|v| *v as f32)
            .sum();
        for row in &c[0] {
            assert!((row.iter().sum::<f32>() - taps).abs() < 1e-5);
            assert_eq!(row.iter().filter(|v| **v != 0.0).count(), k * k);
        }
    }
}

#[test]
fn the_middle_tap_is_the_identity_and_the_next_one_a_step() {
    let tap = |at: usize| {
        let taps: Vec<f32> = (0..9).map(|i| f32::from(i == at)).collect();
        let taps = Tensor::from_vec(taps, (1, 3, 3), &CPU).unwrap();
        circulant(&taps, 4).unwrap().squeeze(0).unwrap()
    };
    let eye = Tensor::eye(16, DType::F32, &CPU).unwrap();
    assert_eq!(values(&tap(4)), values(&eye));
    // The tap to the right takes from the next column, around the edge.
    let right = tap(5).to_vec2::<f32>().unwrap();
    assert!((0..16).all(|a| right[a][a / 4 * 4 + (a + 1) % 4] == 1.0));
    assert!(circulant(&tensor("taps", &[1, 5, 5]), 4).is_err());
}

#[test]
fn offsets_are_those_from_query_to_key() {
    let all = offsets(3, DType::F32, &CPU).unwrap();
    let all = all.to_vec2::<f32>().unwrap();
    assert_eq!(all.len(), 81);
    assert_eq!(all[9 + 1], [0.0, 0.0, 0.0]); // from a patch to itself
    assert_eq!(all[5], [2.0, 1.0, 5.0]); // from the first row and column to (1, 2)
    assert_eq!(all[8 * 9 + 3], [-2.0, -1.0, 5.0]);
}

/// Exact: a gate mixes two maps whose rows sum to 1, so its rows sum to 1 too.
#[test]
fn gated_rows_add_up_to_one() {
    let shape = shape(PositionalAttention::Gpsa);
    let mut weights = weights(&shape.parameters());
    let scores = tensor("scores", &[2, 3, 16, 16]);
    let rows =
        |weights: &Weights| with_positions(&shape, weights, &scores, "blocks.1.attn").unwrap();
    let found = rows(&weights);
    for sum in values(&found.sum(3).unwrap()) {
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }
    // An open gate leaves only the positions, the same for every image; a closed one only the content.
    let gate = |value: f32| Tensor::full(value, 3, &CPU).unwrap();
    weights.insert("blocks.1.attn.gating_param".into(), gate(40.0));
    let open = rows(&weights);
    assert_close("open", &open.get(0).unwrap(), &open.get(1).unwrap(), 1e-7);
    weights.insert("blocks.1.attn.gating_param".into(), gate(-40.0));
    let content = stock::softmax(&scores).unwrap();
    assert_close("closed", &rows(&weights), &content, 1e-6);
}

impl PositionalShape {
    /// Name and shape of every weight: timm's, except for the convolutions.
    pub(crate) fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (d, h, k) = (self.vit.width, self.vit.heads, KERNEL);
        let gpsa = self.attention == PositionalAttention::Gpsa;
        let mut all = Vec::new();
        for (name, shape) in self.vit.parameters() {
            let Some((attn, part)) = name.split_once("qkv.") else {
                all.push((name, shape));
                continue;
            };
            let rows = |rows: usize| [&[rows], &shape[1..]].concat();
            if gpsa {
                all.push((format!("{attn}qk.{part}"), rows(2 * d)));
                all.push((format!("{attn}v.{part}"), rows(d)));
            } else {
                all.push((name.clone(), shape.clone()));
            }
            if part != "bias" {
                continue; // a layer's own, once
            }
            let own = format!("{attn}{}", self.attention.own_name());
            if gpsa {
                all.push((format!("{own}.weight"), vec![h, 3]));
                all.push((format!("{own}.bias"), vec![h]));
                all.push((format!("{attn}gating_param"), vec![h]));
            } else {
                all.push((format!("{own}.weight"), vec![h, k, k]));
                all.push((format!("{own}.gamma"), vec![1]));
            }
        }
        all
    }
}
