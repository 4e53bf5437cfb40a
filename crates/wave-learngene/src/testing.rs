//! Helpers of the tests: seeded tensors and plain loops to compare with.

use crate::{DepthRule, Learngene, Part, Plan, Scalers, Templates};
use candle_core::{DType, Device, Shape, Tensor};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
pub(crate) use wave_models::vit::VitShape;
pub(crate) use wave_ops::Kronecker;

pub(crate) fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

pub(crate) fn normal(rng: &mut ChaCha8Rng, shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let values: Vec<f32> = (0..shape.elem_count())
        .map(|_| StandardNormal.sample(rng))
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

pub(crate) fn templates(rng: &mut ChaCha8Rng, plan: &Plan) -> Templates {
    let t = plan.template_size;
    let sets = plan.counts.iter();
    sets.map(|(set, &n)| (set.clone(), normal(rng, (n, t, t))))
        .collect()
}

pub(crate) fn scalers(
    rng: &mut ChaCha8Rng,
    plan: &Plan,
    shape: &VitShape,
    depth: usize,
) -> Scalers {
    let parts = plan.sets.keys();
    parts
        .map(|&part| {
            let [n, r, c] = plan.scaler_shape(part, shape);
            (part, normal(rng, (depth, n, r, c)))
        })
        .collect()
}

/// A plan whose parts have sets of their own, and the counts of qkv, proj, fc1 and fc2.
pub(crate) fn plan(t: usize, kronecker: Kronecker, counts: [usize; 4]) -> Plan {
    let counts = Part::ALL.into_iter().zip(counts);
    let counts = counts.map(|(part, n)| (part.name().to_owned(), n));
    Plan::new(t, kronecker, Plan::own_sets(), counts.collect())
}

/// A tiled plan whose parts have their own sets, except the parts in `shared`; counts by set.
pub(crate) fn shared_plan(t: usize, shared: &[(Part, &str)], counts: [(&str, usize); 3]) -> Plan {
    let mut sets = Plan::own_sets();
    sets.extend(shared.iter().map(|(part, set)| (*part, (*set).to_owned())));
    let counts = counts.map(|(set, n)| (set.to_owned(), n)).into();
    Plan::new(t, Kronecker::Tile, sets, counts)
}

/// The parts of the MLP share a set.
pub(crate) const MLP: [(Part, &str); 2] = [(Part::Fc1, "mlp"), (Part::Fc2, "mlp")];

/// A transformer with blocks of these sizes.
pub(crate) fn block(width: usize, hidden: usize) -> VitShape {
    VitShape {
        width,
        mlp_ratio: (hidden as f64 + 0.5) / width as f64, // rounded down
        heads: 1,
        ..VitShape::default()
    }
}

pub(crate) fn flat(x: &Tensor) -> Vec<f64> {
    let x = x.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    x.to_vec1().unwrap()
}

#[track_caller]
pub(crate) fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        let scale = 1.0 + y.abs();
        assert!((x - y).abs() <= tolerance * scale, "at {i}: {x} and {y}");
    }
}

/// `sum_i S_i (x) T_i` of one layer, or `T_i (x) S_i`, written out: numpy's `kron(p, q)` has
/// `p[a, b] * q[i, j]` at row `a * rows(q) + i` and column `b * columns(q) + j`.
pub(crate) fn plain_kronecker_sum(
    templates: &Tensor,
    scalers: &Tensor,
    layer: usize,
    order: Kronecker,
) -> Vec<f64> {
    let (n, t, _) = templates.dims3().unwrap();
    let (_, _, r, c) = scalers.dims4().unwrap();
    let (tv, sv) = (flat(templates), flat(scalers));
    let mut w = vec![0.0; r * t * c * t];
    for k in 0..n {
        for a in 0..r {
            for b in 0..c {
                for i in 0..t {
                    for j in 0..t {
                        let (row, col) = match order {
                            Kronecker::Tile => (a * t + i, b * t + j),
                            Kronecker::Interleave => (i * r + a, j * c + b),
                        };
                        w[row * c * t + col] +=
                            sv[((layer * n + k) * r + a) * c + b] * tv[(k * t + i) * t + j];
                    }
                }
            }
        }
    }
    w
}

/// Logits of three images from a learngene's model of this size.
pub(crate) fn logits(gene: &Learngene, depth: usize, width: usize) -> Tensor {
    let shape = gene.shape(depth, width, None).unwrap();
    let weights = gene.stacked_weights(&shape).unwrap();
    let images = normal(&mut rng(2), (3, 3, 16, 16));
    wave_models::vit::logits(&shape, &weights, &images, None).unwrap()
}

/// The scalers of all parts at another size.
pub(crate) fn resized(plan: &Plan, scalers: &Scalers, from: &VitShape, to: &VitShape) -> Scalers {
    let of = |(&part, s)| {
        let resized = crate::bank::resize_scalers(plan, part, s, from, to);
        (part, resized.unwrap())
    };
    scalers.iter().map(of).collect()
}

/// `y = W x`, with `W` of `(rows, x.len())`.
pub(crate) fn plain_matvec(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len())
        .map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
        .collect()
}

/// A learngene of random values: 5 anchors, width 64, templates of 16.
pub(crate) fn learngene(kronecker: Kronecker) -> Learngene {
    let rng = &mut rng(1);
    let auxiliary = VitShape {
        image_size: 16,
        patch: 8,
        channels: 3,
        classes: 10,
        class_token: true,
        depth: 5,
        width: 64,
        heads: 4,
        ..VitShape::default()
    };
    let plan = plan(16, kronecker, [3, 2, 4, 5]);
    let inherited = auxiliary.stacked_parameters().into_iter();
    let inherited = inherited
        .filter(|(name, _)| !plan.composes(name))
        .map(|(name, dims)| (name, normal(rng, dims)))
        .collect();
    Learngene {
        templates: templates(rng, &plan),
        bank: scalers(rng, &plan, &auxiliary, 5),
        inherited,
        plan,
        auxiliary,
        depth_rule: DepthRule::LastIsOne,
        smaller: Vec::new(),
    }
}
