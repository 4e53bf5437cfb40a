//! Node embeddings: Graphormer layers over the graph of a network.
//!
//! ```text
//! x_i  += z_in(in-degree) + z_out(out-degree) + z_dist(path from the input)     before the first layer
//! e_ij  = MLP(embed(path i to j), embed(path j to i))                           for each head; all layers
//! a_ij  = softmax_j(q_i k_j / sqrt(head width) + e_ij)
//! x     = x + proj(a v);   x = x + MLP(LN(x))                                   of LN(x) both
//! ```

use candle_core::{D, DType, Device, Result, Tensor};
use wave_models::Weights;
use wave_ops::{gelu, layer_norm, stock};

use super::shape::{HyperShape, LONGEST_FROM_INPUT, MOST_DEGREE};
use super::{VitGraph, get, linear};

/// Added to variances, as PyTorch does by default.
const EPS: f64 = 1e-5;

/// A path's row of the embedding is its length plus this; the first two rows are unused.
const FIRST_PATH: u32 = 2;

/// Embeddings of all nodes, (nodes, hidden).
///
/// # Errors
/// If a weight is missing or of another shape.
pub fn embed(shape: &HyperShape, weights: &Weights, graph: &VitGraph) -> Result<Tensor> {
    let mut x = operations(shape, weights, graph)?;
    let n = graph.len();
    let degree = |of: &dyn Fn(usize, usize) -> usize| -> Vec<u32> {
        let edges = |i| (0..n).filter(|j| graph.paths[of(i, *j)] == 1).count();
        (0..n).map(|i| edges(i).min(MOST_DEGREE) as u32).collect()
    };
    let from_input = graph.paths[..n].iter();
    let places = [
        ("centrality_embed_in", degree(&|i, j| j * n + i)),
        ("centrality_embed_out", degree(&|i, j| i * n + j)),
        (
            "input_dist_embed",
            from_input
                .map(|p| (*p).min(LONGEST_FROM_INPUT as u32))
                .collect(),
        ),
    ];
    for (name, rows) in places {
        x = (x + lookup(weights, name, rows)?)?;
    }
    let bias = paths(shape, weights, graph)?;
    for layer in 0..shape.layers {
        x = self::layer(shape, weights, layer, &x, &bias)?;
    }
    match shape.final_norm {
        true => norm(weights, "ln", &x),
        false => Ok(x),
    }
}

/// The embedding of each node's operation and of the shape of its weights.
fn operations(shape: &HyperShape, weights: &Weights, graph: &VitGraph) -> Result<Tensor> {
    let types = graph.nodes.iter().map(|node| node.operation as u32);
    let x = lookup(weights, "embed", types.collect())?;
    let sizes = |of: &dyn Fn(Option<[usize; 4]>) -> u32| -> Vec<u32> {
        graph.nodes.iter().map(|node| of(node.dims)).collect()
    };
    let mut parts = Vec::new();
    for i in 0..4 {
        let (name, rows) = match i {
            0 | 1 => (
                "shape_enc.embed_channel",
                sizes(&|dims| shape.channel_row(dims.map(|d| d[i]))),
            ),
            _ => (
                "shape_enc.embed_spatial",
                sizes(&|dims| shape.spatial_row(dims.map(|d| d[i]))),
            ),
        };
        parts.push(lookup(weights, name, rows)?);
    }
    x + Tensor::cat(&parts, D::Minus1)?
}

/// The bias of the attention by the paths between nodes, (heads, nodes, nodes).
fn paths(shape: &HyperShape, weights: &Weights, graph: &VitGraph) -> Result<Tensor> {
    let n = graph.len();
    let forth = graph.paths.iter().map(|p| p + FIRST_PATH).collect();
    let back = (0..n * n).map(|ij| graph.paths[ij % n * n + ij / n] + FIRST_PATH);
    let name = "gnn.0.attn.edge_embed.embed";
    let both = [
        lookup(weights, name, forth)?,
        lookup(weights, name, back.collect())?,
    ];
    let x = Tensor::cat(&both, D::Minus1)?; // (n n, 2 hidden)
    let x = linear(weights, "gnn.0.attn.proj_e.0", &x)?.relu()?;
    let x = linear(weights, "gnn.0.attn.proj_e.2", &x)?; // (n n, heads)
    x.t()?.reshape((shape.heads, n, n))
}

/// One Graphormer layer over nodes (n, hidden), with the bias of [`paths`].
fn layer(
    shape: &HyperShape,
    weights: &Weights,
    layer: usize,
    x: &Tensor,
    bias: &Tensor,
) -> Result<Tensor> {
    let (n, h) = x.dims2()?;
    let (heads, width) = (shape.heads, h / shape.heads);
    let name = |part: &str| format!("gnn.{layer}.{part}");
    let w = get(weights, &name("attn.to_qkv.weight"))?; // (3 h, h), without a bias
    let qkv = norm(weights, &name("ln1"), x)?.matmul(&w.t()?)?;
    let qkv = qkv.reshape((n, 3, heads, width))?.permute((1, 2, 0, 3))?; // (3, heads, n, width)
    let part = |i: usize| qkv.get(i)?.contiguous();
    let scores = (part(0)?.matmul(&part(1)?.t()?)? / (width as f64).sqrt())?;
    let shares = stock::softmax(&(scores + bias)?)?; // (heads, n, n)
    let mixed = shares.matmul(&part(2)?)?.transpose(0, 1)?.reshape((n, h))?;
    let x = (x + linear(weights, &name("attn.to_out.0"), &mixed)?)?;
    let wide = linear(
        weights,
        &name("ff.net.0"),
        &norm(weights, &name("ln2"), &x)?,
    )?;
    x + linear(weights, &name("ff.net.3"), &gelu(&wide)?)?
}

fn norm(weights: &Weights, name: &str, x: &Tensor) -> Result<Tensor> {
    let weight = get(weights, &format!("{name}.weight"))?;
    layer_norm(x, weight, get(weights, &format!("{name}.bias"))?, EPS)
}

/// Rows of an embedding.
fn lookup(weights: &Weights, name: &str, rows: Vec<u32>) -> Result<Tensor> {
    let table = get(weights, &format!("{name}.weight"))?;
    let n = rows.len();
    let rows = Tensor::from_vec(rows, n, &Device::Cpu)?.to_dtype(DType::U32)?;
    table.index_select(&rows.to_device(table.device())?, 0)
}
