use super::*;
use crate::testing::{MLP, block, shared_plan};
use proptest::prelude::*;

fn vit(depth: usize, width: usize) -> VitShape {
    VitShape {
        depth,
        ..block(width, 4 * width)
    }
}

#[test]
fn default_budget_is_two_layers_of_parameters() {
    for d in [192, 384, 768] {
        let plan = Plan::default_budget(d, d);
        assert_eq!(plan.counts.values().sum::<usize>(), 24);
        assert_eq!(plan.template_parameters(), 24 * d * d);
        assert_eq!(plan.scaler_count(&vit(1, d)), 84); // 6*3 + 2*1 + 8*4 + 8*4
        assert_eq!(plan.scaler_count(&vit(12, d)), 1008);
    }
}

// The paper's Table 2: 96 templates of 192, six layers, widths 384 to 1536.
// >>> [6 * (w // 192)**2 * (24*3 + 8 + 32*4 + 32*4) for w in (384, 1536)]
// [8064, 129024]
#[test]
fn smaller_templates_keep_the_budget() {
    let plan = Plan::default_budget(384, 192);
    let counts = Part::ALL.map(|part| plan.n_templates(part));
    assert_eq!(counts, [24, 8, 32, 32]);
    assert_eq!(plan.template_parameters(), 24 * 384 * 384);
    assert_eq!(plan.scaler_count(&vit(6, 384)), 8064);
    assert_eq!(plan.scaler_count(&vit(6, 1536)), 129_024);
}

#[test]
fn a_shared_set_is_counted_once() {
    let plan = shared_plan(192, &MLP, [("qkv", 6), ("proj", 2), ("mlp", 16)]);
    assert_eq!(plan.template_parameters(), 24 * 192 * 192);
    assert_eq!(plan.scaler_count(&vit(12, 192)), 1776); // 148 per layer
}

#[test]
fn composed_weights_are_known_by_name() {
    let plan = Plan::default_budget(8, 8);
    for name in [
        "blocks.0.attn.qkv.weight",
        "blocks.11.mlp.fc2.weight",
        "blocks.7.mlp.fc1.weight",
        "blocks.attn.proj.weight",
    ] {
        assert!(plan.composes(name), "{name}");
    }
    for name in [
        "blocks.0.attn.qkv.bias",
        "blocks.0.attn.q_norm.weight",
        "blocks.0.norm1.weight",
        "head.weight",
        "attn.qkv.weight",
    ] {
        assert!(!plan.composes(name), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_grid_covers_every_part_and_no_more(
        t in 1usize..9, width in 1usize..40, hidden in 1usize..80,
    ) {
        let plan = Plan::default_budget(8, t);
        let shape = block(width, hidden);
        for part in Part::ALL {
            let (segments, r, c) = plan.blocks(part, &shape);
            let (rows, cols) = part.rows_cols(&shape);
            let tall = r / segments * t;
            prop_assert_eq!(r % segments, 0);
            prop_assert!(tall >= rows / segments && tall < rows / segments + t);
            prop_assert!(c * t >= cols && c * t < cols + t);
            prop_assert_eq!(plan.scaler_shape(part, &shape), [plan.n_templates(part), r, c]);
        }
    }
}
