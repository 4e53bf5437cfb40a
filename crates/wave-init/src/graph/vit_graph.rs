//! The graph of a vision transformer: operations in the order of the forward pass, and the lengths of the
//! shortest directed paths between them (the virtual edges of GHN-2).

use std::collections::VecDeque;

use wave_models::vit::VitShape;

/// Paths longer than this are none: the cut-off of virtual edges.
const LONGEST: u32 = 50;

/// A node's operation, in the published order: its number is its row of the embedding. A vision
/// transformer needs some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A linear map or convolution.
    Convolution = 4,
    /// Softmax attention.
    Attention = 5,
    /// A sum of several inputs.
    Sum = 7,
    /// The image.
    Input = 9,
    /// A bias.
    Bias = 10,
    /// A layer norm.
    LayerNorm = 12,
    /// A position embedding.
    Positions = 13,
    /// The mean over tokens.
    GlobalAverage = 14,
}

/// Operations that hypernetworks know.
pub(super) const OPERATIONS: usize = 15;

/// A node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its operation.
    pub operation: Operation,
    /// Timm's name of its weight, or of its layer where a norm has two; empty if it has none.
    pub name: String,
    /// The shape of its weight: (outputs, inputs, height, width), 1 where there is no such dimension.
    pub dims: Option<[usize; 4]>,
}

/// A vision transformer as a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VitGraph {
    /// The operations; the input comes first.
    pub nodes: Vec<Node>,
    /// From each node to each: edges along the longest number of which is the shortest path's, 0 where
    /// there is none. Row-major.
    pub paths: Vec<u32>,
}

impl VitGraph {
    /// The graph of this transformer, without its class token, which is not predicted.
    ///
    /// ```text
    /// input - patches - bias - sum - [block] - .. - mean - norm - head - bias
    ///                positions /
    /// block   norm1 - qkv - bias - attention - proj - bias - sum - norm2 - fc1 - bias - fc2 - bias - sum
    ///         and from what goes into a norm to the sum that it is added to
    /// ```
    ///
    /// With a class token the mean is left out.
    pub fn new(shape: &VitShape) -> VitGraph {
        let (d, hidden, p) = (shape.width, shape.hidden(), shape.patch);
        let mut graph = Builder::default();
        let input = graph.add(Operation::Input, "", None, &[]);
        let patches = [d, shape.channels, p, p];
        let patches = graph.affine("patch_embed.proj", patches, input);
        let grid = [1, d, shape.grid(), shape.grid()];
        let positions = graph.add(Operation::Positions, "pos_embed", Some(grid), &[]);
        let mut x = graph.add(Operation::Sum, "", None, &[patches, positions]);
        for layer in 0..shape.depth {
            let name = |part: &str| format!("blocks.{layer}.{part}");
            let normed = graph.norm(&name("norm1"), d, x);
            let qkv = graph.affine(&name("attn.qkv"), [3 * d, d, 1, 1], normed);
            let attention = graph.add(Operation::Attention, "", None, &[qkv]);
            let projected = graph.affine(&name("attn.proj"), [d, d, 1, 1], attention);
            x = graph.add(Operation::Sum, "", None, &[x, projected]);
            let normed = graph.norm(&name("norm2"), d, x);
            let wide = graph.affine(&name("mlp.fc1"), [hidden, d, 1, 1], normed);
            let narrow = graph.affine(&name("mlp.fc2"), [d, hidden, 1, 1], wide);
            x = graph.add(Operation::Sum, "", None, &[x, narrow]);
        }
        if !shape.class_token {
            x = graph.add(Operation::GlobalAverage, "", None, &[x]);
        }
        let normed = graph.norm(shape.final_norm(), d, x);
        graph.affine("head", [shape.classes, d, 1, 1], normed);
        graph.finish()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// There are no nodes, as in no transformer's graph.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    /// For each node, those it leads to.
    after: Vec<Vec<usize>>,
}

impl Builder {
    /// A node after others; its number.
    fn add(
        &mut self,
        operation: Operation,
        name: &str,
        dims: Option<[usize; 4]>,
        before: &[usize],
    ) -> usize {
        let number = self.nodes.len();
        self.nodes.push(Node {
            operation,
            name: name.to_owned(),
            dims,
        });
        self.after.push(Vec::new());
        for node in before {
            self.after[*node].push(number);
        }
        number
    }

    /// A weight and the bias after it.
    fn affine(&mut self, name: &str, dims: [usize; 4], before: usize) -> usize {
        let weight = format!("{name}.weight");
        let weight = self.add(Operation::Convolution, &weight, Some(dims), &[before]);
        let bias = format!("{name}.bias");
        self.add(Operation::Bias, &bias, Some([dims[0], 1, 1, 1]), &[weight])
    }

    /// A norm is one node, which stands for its scale and shift.
    fn norm(&mut self, name: &str, width: usize, before: usize) -> usize {
        self.add(
            Operation::LayerNorm,
            name,
            Some([width, 1, 1, 1]),
            &[before],
        )
    }

    fn finish(self) -> VitGraph {
        let n = self.nodes.len();
        let mut paths = vec![0; n * n];
        for (from, row) in paths.chunks_mut(n).enumerate() {
            let mut queue = VecDeque::from([(from, 0)]);
            while let Some((node, length)) = queue.pop_front() {
                if length == LONGEST {
                    continue;
                }
                for next in &self.after[node] {
                    if row[*next] == 0 && *next != from {
                        row[*next] = length + 1;
                        queue.push_back((*next, length + 1));
                    }
                }
            }
        }
        VitGraph {
            nodes: self.nodes,
            paths,
        }
    }
}
