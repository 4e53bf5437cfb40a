//! The nodes of a vision transformer.
//!
//! b: batch, n: tokens, d: width, h: heads, e = d/h: width of a head.

use candle_core::Tensor;

use super::VitSizes;
use super::schema::{self, int, ints};
use crate::proto::Message;
use crate::{FloatType, Weights};

/// A graph: its nodes in the order of execution, and their constants.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Message>,
    pub(super) constants: Vec<Message>,
    /// Weights as they will be stored, by their names there.
    pub(super) weights: Vec<(String, Tensor)>,
    norm_eps: f32,
}

impl Graph {
    /// Adds a node with one output, which is also the node's name, and returns that.
    fn node(
        &mut self,
        operator: &str,
        name: &str,
        inputs: &[&str],
        attributes: &[Message],
    ) -> String {
        let node = schema::node(operator, name, inputs, &[name], attributes);
        self.nodes.push(node);
        name.to_owned()
    }
}

/// The whole network, from timm's weights, all of type `float`.
pub(super) fn vit(
    sizes: &VitSizes,
    weights: &Weights,
    float: FloatType,
) -> candle_core::Result<Graph> {
    let mut graph = Graph {
        constants: constants(sizes),
        norm_eps: sizes.norm_eps,
        ..Graph::default()
    };
    for (name, tensor) in weights {
        let (mut name, tensor) = match name.starts_with("blocks.") && tensor.rank() == 2 {
            true => (format!("{name}_t"), tensor.t()?),
            false => (name.clone(), tensor.clone()),
        };
        if float != FloatType::F32 {
            let stored = format!("{name}_{float}");
            graph.node("Cast", &name, &[&stored], &[int("to", schema::FLOAT)]);
            name = stored;
        }
        graph.weights.push((name, tensor));
    }
    let g = &mut graph;
    let mut x = embed(g, sizes); // (b, n, d)
    for l in 0..sizes.depth {
        x = block(g, &format!("blocks.{l}"), &x); // (b, n, d)
    }
    head(g, sizes, &x); // (b, classes)
    Ok(graph)
}

/// The constants, by the names that nodes use.
fn constants(sizes: &VitSizes) -> Vec<Message> {
    let (d, heads) = (sizes.width as i64, sizes.heads as i64);
    let patches = (sizes.grid() * sizes.grid()) as i64;
    let list = |name: &str, values: &[i64]| schema::integers(name, &[values.len()], values);
    let mut all = vec![
        // Splits (b, n, d) into heads.
        list("shape.split_heads", &[0, 0, heads, d / heads]),
        // Joins the heads of (b, n, h, e).
        list("shape.join_heads", &[0, 0, d]),
        // q, k and v.
        list("shape.thirds", &[d, d, d]),
        list("shape.patches", &[0, d, patches]),
    ];
    if sizes.class_token {
        all.push(list("shape.token", &[1, d]));
        // An index without dimensions drops the dimension it picks from.
        all.push(schema::integers("first", &[], &[0]));
    }
    all.extend([
        schema::scalar("scale", ((d / heads) as f32).sqrt().recip()), // 1/sqrt(e)
        schema::scalar("half", 0.5),
        schema::scalar("one", 1.0),
        schema::scalar("root_half", std::f32::consts::FRAC_1_SQRT_2),
    ]);
    all
}

/// x = patches W^T + bias, the class token before them, + positions.
fn embed(g: &mut Graph, sizes: &VitSizes) -> String {
    let p = [sizes.patch as i64; 2];
    let squares = [ints("kernel_shape", &p), ints("strides", &p)];
    let inputs = ["images", "patch_embed.proj.weight", "patch_embed.proj.bias"];
    let x = g.node("Conv", "patch_embed.proj", &inputs, &squares); // (b, d, grid, grid)
    let x = g.node("Reshape", "patch_embed.flat", &[&x, "shape.patches"], &[]); // (b, d, n)
    let perm = ints("perm", &[0, 2, 1]);
    let mut x = g.node("Transpose", "patch_embed", &[&x], &[perm]); // (b, n, d)
    if sizes.class_token {
        let first = [int("start", 0), int("end", 1)];
        let batch = g.node("Shape", "batch", &["images"], &first); // (b)
        let shape = [&*batch, "shape.token"];
        let shape = g.node("Concat", "cls_token.shape", &shape, &[int("axis", 0)]);
        let token = g.node("Expand", "cls_token.batch", &["cls_token", &shape], &[]); // (b, 1, d)
        x = g.node("Concat", "tokens", &[&token, &x], &[int("axis", 1)]); // (b, n, d)
    }
    g.node("Add", "embedded", &[&x, "pos_embed"], &[])
}

/// x + attention(norm1(x)), then x + mlp(norm2(x)).
fn block(g: &mut Graph, at: &str, x: &str) -> String {
    let y = norm(g, &format!("{at}.norm1"), x);
    let y = attention(g, &format!("{at}.attn"), &y);
    let x = g.node("Add", &format!("{at}.attended"), &[x, &y], &[]);
    let y = norm(g, &format!("{at}.norm2"), &x);
    let y = mlp(g, &format!("{at}.mlp"), &y);
    g.node("Add", at, &[&x, &y], &[])
}

/// proj(softmax(q k^T / sqrt(e)) v), head by head.
fn attention(g: &mut Graph, at: &str, x: &str) -> String {
    let qkv = linear(g, &format!("{at}.qkv"), x); // (b, n, 3d)
    let thirds = ["q", "k", "v"].map(|part| format!("{at}.{part}"));
    let [q, k, v] = thirds.each_ref().map(String::as_str);
    let axis = [int("axis", -1)];
    let (name, from) = (format!("{at}.split"), [&*qkv, "shape.thirds"]);
    let split = schema::node("Split", &name, &from, &[q, k, v], &axis);
    g.nodes.push(split);
    let mut heads = |part: &str, perm: [i64; 4]| {
        let name = format!("{part}.heads");
        let y = g.node("Reshape", &name, &[part, "shape.split_heads"], &[]); // (b, n, h, e)
        let perm = ints("perm", &perm);
        g.node("Transpose", &format!("{part}.first"), &[&y], &[perm])
    };
    let forward = [0, 2, 1, 3];
    let q = heads(q, forward); // (b, h, n, e)
    let k = heads(k, [0, 2, 3, 1]); // (b, h, e, n)
    let v = heads(v, forward); // (b, h, n, e)
    let q = g.node("Mul", &format!("{at}.q.scaled"), &[&q, "scale"], &[]);
    let scores = g.node("MatMul", &format!("{at}.scores"), &[&q, &k], &[]); // (b, h, n, n)
    let shares = g.node("Softmax", &format!("{at}.softmax"), &[&scores], &axis);
    let y = g.node("MatMul", &format!("{at}.mixed"), &[&shares, &v], &[]); // (b, h, n, e)
    let perm = ints("perm", &forward);
    let y = g.node("Transpose", &format!("{at}.back"), &[&y], &[perm]); // (b, n, h, e)
    let joined = format!("{at}.joined");
    let y = g.node("Reshape", &joined, &[&y, "shape.join_heads"], &[]); // (b, n, d)
    linear(g, &format!("{at}.proj"), &y)
}

/// fc2(gelu(fc1(x))), with gelu(x) = x (1 + erf(x / sqrt 2)) / 2.
fn mlp(g: &mut Graph, at: &str, x: &str) -> String {
    let x = linear(g, &format!("{at}.fc1"), x); // (b, n, hidden)
    let y = g.node("Mul", &format!("{at}.act.in"), &[&x, "root_half"], &[]);
    let y = g.node("Erf", &format!("{at}.act.erf"), &[&y], &[]);
    let y = g.node("Add", &format!("{at}.act.gate"), &[&y, "one"], &[]);
    let y = g.node("Mul", &format!("{at}.act.twice"), &[&x, &y], &[]);
    let y = g.node("Mul", &format!("{at}.act"), &[&y, "half"], &[]);
    linear(g, &format!("{at}.fc2"), &y) // (b, n, d)
}

/// The class token's or the mean token's logits.
fn head(g: &mut Graph, sizes: &VitSizes, x: &str) {
    let pooled = if sizes.class_token {
        g.node("Gather", "pooled", &[x, "first"], &[int("axis", 1)])
    } else {
        let over = [ints("axes", &[1]), int("keepdims", 0)];
        g.node("ReduceMean", "pooled", &[x], &over)
    }; // (b, d)
    let z = norm(g, sizes.last_norm(), &pooled);
    let inputs = [&*z, "head.weight", "head.bias"];
    let transposed = [int("transB", 1)];
    let gemm = schema::node("Gemm", "head", &inputs, &["logits"], &transposed);
    g.nodes.push(gemm);
}

fn norm(g: &mut Graph, at: &str, x: &str) -> String {
    let (weight, bias) = (format!("{at}.weight"), format!("{at}.bias"));
    let settings = [int("axis", -1), schema::float("epsilon", g.norm_eps)];
    g.node("LayerNormalization", at, &[x, &weight, &bias], &settings)
}

/// x W^T + bias.
fn linear(g: &mut Graph, at: &str, x: &str) -> String {
    let y = format!("{at}.product");
    let y = g.node("MatMul", &y, &[x, &format!("{at}.weight_t")], &[]);
    g.node("Add", at, &[&y, &format!("{at}.bias")], &[])
}
