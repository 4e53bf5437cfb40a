use super::*;
use crate::testing::{assert_close, fixture, images, tensor, weights};

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

#[test]
fn logits_equal_those_of_timm_and_torch() {
    for attention in PositionalAttention::value_variants() {
        let case = attention.to_possible_value().unwrap();
        let shape = shape(*attention);
        let weights = weights(&shape.parameters());
        let found = logits(&shape, &weights, &images(2, 2, 12)).unwrap();
        let expected = fixture("positional.safetensors", case.get_name());
        assert_close(case.get_name(), &found, &expected, 1e-4);
    }
}

/// Exact: `C[a, b]` is the tap of the offset from a to b, around the edges, and zero where there is none.
#[test]
fn convolutions_are_doubly_block_circulant() {
    for (k, g) in [(3, 4), (2, 3), (5, 5), (1, 4), (4, 7)] {
        let taps = tensor("taps", &[2, k, k]);
        let c = circulant(&taps, g).unwrap().to_vec3::<f32>().unwrap();
        let taps = taps.to_vec3::<f32>().unwrap();
        for (head, from) in (0..2).flat_map(|h| (0..g * g).map(move |from| (h, from))) {
            let row = &c[head][from];
            assert_eq!(row.iter().filter(|v| **v != 0.0).count(), k * k);
            for (i, j) in (0..k * k).map(|tap| (tap / k, tap % k)) {
                let wrapped = |at: usize, tap: usize| (at + g + tap - k / 2) % g;
                let to = wrapped(from / g, i) * g + wrapped(from % g, j);
                assert_eq!(row[to], taps[head][i][j]);
            }
        }
    }
    assert!(circulant(&tensor("taps", &[1, 5, 5]), 4).is_err());
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
            match gpsa {
                true => all.extend([("qk", 2 * d), ("v", d)].map(|(map, rows)| {
                    let shape = [&[rows], &shape[1..]].concat();
                    (format!("{attn}{map}.{part}"), shape)
                })),
                false => all.push((name.clone(), shape)),
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
