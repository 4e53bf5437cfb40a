//! Launches kernels: grids and arguments, as declared in `kernels/*.cu`. Sizes are checked here.

use super::{Argument, Kind, Place, Values, View, int, long};
use candle_core::Result;

/// Default number of threads in a block.
const THREADS: u32 = 256;
/// Rows per block if each warp has one row; see `common.h`.
const ROWS: usize = 8;
/// Threads of a warp.
const LANES: usize = 32;
/// Maximum number of channels of a head.
pub(super) const WIDEST_HEAD: usize = 128;
/// Numbers of four-value vectors per lane in a row for which `norm.cu` has kernels.
const NORMS: [usize; 7] = [1, 2, 3, 4, 6, 8, 16];
/// The widest row that a layer norm takes.
pub(super) const WIDEST_NORM: usize = 16 * 4 * LANES;
/// Minimum number of rows in a part of a column sum, and maximum number of parts.
const PART: (usize, usize) = (64, 256);

/// Samples, tokens, heads, and channels of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub(super) samples: usize,
    pub(super) tokens: usize,
    pub(super) heads: usize,
    pub(super) head_width: usize,
}

impl Attention {
    /// Number of values with one row per token and one entry per channel.
    fn outputs(&self) -> usize {
        self.samples * self.tokens * self.heads * self.head_width
    }

    /// Number of values with one per token and head.
    pub(super) fn rows(&self) -> usize {
        self.samples * self.tokens * self.heads
    }

    /// Sizes as the kernels take them; the last is true if vectors of eight values can be read.
    fn arguments(&self, views: &[View]) -> [Argument; 4] {
        let wide = self.head_width.is_multiple_of(8)
            && views.iter().all(|view| view.pointer.is_multiple_of(16));
        [
            int(self.tokens),
            int(self.heads),
            int(self.head_width),
            wide.into(),
        ]
    }

    /// The suffix of a kernel's name (for the pass over keys or the other one), the blocks per head and threads per
    /// block.
    fn kernel(&self, kind: Kind, keys: bool) -> (String, usize, u32) {
        let width = self.head_width.next_power_of_two().max(16);
        assert!(width <= WIDEST_HEAD, "heads of {}", self.head_width);
        // `WARPS` and `KEY_WARPS` of `attention.cu`.
        let most: usize = match (kind, width <= 64, keys) {
            (Kind::Bf16, true, false) => 8,
            (Kind::Bf16, true, true) | (Kind::Bf16, false, false) => 4,
            (Kind::Bf16, false, true) | (_, true, _) => 2,
            (_, false, _) => 1,
        };
        let warps = self.tokens.div_ceil(16);
        let blocks = warps.div_ceil(most);
        let threads = warps.div_ceil(blocks) * LANES;
        (format!("{}_{width}", kind.name()), blocks, threads as u32)
    }
}

/// A branch that is added to a residual connection, or its gradient.
#[derive(Clone, Copy)]
pub(super) struct Branch<'a> {
    pub(super) values: View<'a>,
    /// Added to every row; in the backward pass, the sum of the gradient's rows.
    pub(super) bias: View<'a>,
    /// Drop-path scales of samples.
    pub(super) scales: Option<View<'a>>,
}

/// Parameters of a layer norm, and its epsilon.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    pub(super) weight: View<'a>,
    pub(super) bias: View<'a>,
    pub(super) eps: f32,
}

/// The kernel for rows of `d` values, by the vectors of four values per lane.
fn norm_kernel(name: &str, kind: Kind, d: usize) -> String {
    let times = d.div_ceil(4 * LANES);
    let fits = NORMS.into_iter().find(|j| *j >= times);
    let fits = fits.unwrap_or_else(|| panic!("rows of {d} values"));
    format!("{name}_{}_{fits}", kind.name())
}

impl Place {
    /// `y = x + s (a + bias)` of a branch, and the norm `z` of `y`; either may be missing, see `norm.cu`.
    pub(super) fn norm(
        &self,
        x: View,
        branch: Option<(Branch, View)>,
        norm: Option<(Norm, View)>,
    ) -> Result<()> {
        let n = x.expect(Kind::F32, x.len).len;
        let (mut d, mut kind, mut size) = (1, Kind::F32, 1);
        if let Some((branch, y)) = branch {
            (d, kind) = (branch.bias.len, branch.values.kind);
            branch.values.expect(kind, n);
            branch.bias.expect(Kind::F32, d);
            y.expect(Kind::F32, n);
            size = sample(n / d, branch.scales);
        }
        if let Some((norm, z)) = norm {
            (d, kind) = (norm.weight.len, z.kind);
            norm.weight.expect(Kind::F32, d);
            norm.bias.expect(Kind::F32, d);
            z.expect(kind, n);
        }
        assert!(n.is_multiple_of(d));
        let arguments = arguments![
            x,
            branch.map(|(branch, _)| branch.values),
            branch.map(|(branch, _)| branch.bias),
            branch.and_then(|(branch, _)| branch.scales),
            branch.map(|(_, y)| y),
            norm.map(|(norm, _)| norm.weight),
            norm.map(|(norm, _)| norm.bias),
            norm.map(|(_, z)| z),
            int(n / d),
            int(d),
            int(size),
            norm.map_or(0.0, |(norm, _)| norm.eps),
        ];
        let grid = [(n / d).div_ceil(ROWS), 1, 1];
        self.launch(&norm_kernel("norm", kind, d), grid, THREADS, &arguments)
    }

    /// The gradient of [`Place::norm`]: the gradient of `y` goes to `dy`, added if `add`, then the gradients of the
    /// branch before, if any, and of its bias; the gradients of weight and bias go to `parameters`.
    pub(super) fn norm_backward(
        &self,
        (y, norm): (View, Norm),
        dz: View,
        (dy, add): (View, bool),
        branch: Option<Branch>,
        parameters: [View; 2],
    ) -> Result<()> {
        let (d, n) = (norm.weight.len, y.len);
        let rows = n / d;
        y.expect(Kind::F32, rows * d);
        dz.expect(dz.kind, n);
        dy.expect(Kind::F32, n);
        let scales = branch.and_then(|branch| branch.scales);
        if let Some(branch) = branch {
            branch.values.expect(dz.kind, n);
        }
        let (count, parts) = parts(rows);
        let sums = self.values(Kind::F32, parts * 3 * d)?;
        let arguments = arguments![
            y,
            norm.weight,
            dz,
            dy,
            scales,
            branch.map(|branch| branch.values),
            sums.view(),
            int(rows),
            int(d),
            int(sample(rows, scales)),
            int(count),
            norm.eps,
            add,
        ];
        let name = norm_kernel("norm_backward", dz.kind, d);
        self.launch(&name, [parts, 1, 1], THREADS, &arguments)?;
        let [dw, db] = parameters;
        let to = [Some(dw), Some(db), branch.map(|branch| branch.bias)];
        self.add_parts(sums.view(), parts, to)
    }

    /// The sums of the rows of `x` (rows, d), see `columns.cu`.
    pub(super) fn column_sums(&self, x: View, sums: View) -> Result<()> {
        let d = sums.expect(Kind::F32, sums.len).len;
        let rows = x.len / d;
        x.expect(x.kind, rows * d);
        let (count, parts) = parts(rows);
        let partial = self.values(Kind::F32, parts * d)?;
        let name = format!("column_sums_{}", x.kind.name());
        let arguments = arguments![x, partial.view(), int(rows), int(d), int(count)];
        let grid = [d.div_ceil(THREADS as usize), parts, 1];
        self.launch(&name, grid, THREADS, &arguments)?;
        self.add_parts(partial.view(), parts, [Some(sums), None, None])
    }

    /// Sums `count` parts, each of up to three rows.
    fn add_parts(&self, parts: View, count: usize, sums: [Option<View>; 3]) -> Result<()> {
        let all = sums.into_iter().flatten().count();
        let d = sums[0].expect("one sum at least").len;
        for sum in sums.into_iter().flatten() {
            sum.expect(Kind::F32, d);
        }
        let stride = parts.len / count;
        assert!(all * d <= stride);
        let [a, b, c] = sums.map(Argument::from);
        let arguments = arguments![parts, a, b, c, int(count), int(d), int(stride)];
        let grid = [d.div_ceil(LANES), all, 1];
        self.launch("add_parts", grid, THREADS, &arguments)
    }

    /// `y = gelu(z + bias)`, see `gelu.cu`; the bias is added to every row of its length.
    pub(super) fn gelu(&self, z: View, bias: Option<View>, y: View) -> Result<()> {
        let n = y.expect(z.kind, z.len).len;
        let name = format!("gelu_{}", z.kind.name());
        let d = row(z, bias);
        let arguments = arguments![z, bias, y, long(n), int(d)];
        self.launch(&name, [eights(n), 1, 1], THREADS, &arguments)
    }

    /// The gradient of [`Place::gelu`] without a bias.
    pub(super) fn gelu_backward(&self, z: View, dy: View, dx: View) -> Result<()> {
        let n = z.len;
        dy.expect(z.kind, n);
        dx.expect(z.kind, n);
        let name = format!("gelu_backward_{}", z.kind.name());
        let arguments = arguments![z, dy, dx, long(n)];
        self.launch(&name, [eights(n), 1, 1], THREADS, &arguments)
    }

    /// The gradient of [`Place::gelu`], in place of `g`, the gradient of its bias, and `y` again.
    pub(super) fn gelu_columns(
        &self,
        (z, bias): (View, View),
        g: View,
        y: View,
        d_bias: View,
    ) -> Result<()> {
        let (n, d) = (z.len, row(z, Some(bias)));
        g.expect(z.kind, n);
        y.expect(z.kind, n);
        let (count, parts) = parts(n / d);
        let partial = self.values(Kind::F32, parts * d)?;
        let name = format!("gelu_columns_{}", z.kind.name());
        let arguments = arguments![
            z,
            bias,
            g,
            y,
            partial.view(),
            int(n / d),
            int(d),
            int(count),
        ];
        let grid = [d.div_ceil(THREADS as usize), parts, 1];
        self.launch(&name, grid, THREADS, &arguments)?;
        self.add_parts(partial.view(), parts, [Some(d_bias), None, None])
    }

    /// `s g`, the gradient of a branch, converted to the kind of `to`.
    pub(super) fn branch(&self, g: View, scales: Option<View>, to: View) -> Result<()> {
        let n = g.expect(Kind::F32, to.len).len;
        let name = format!("branch_{}", to.kind.name());
        let arguments = arguments![g, scales, to, long(n), int(sample(n, scales))];
        self.launch(&name, [eights(n), 1, 1], THREADS, &arguments)
    }

    /// A copy of `x` in another kind.
    pub(super) fn narrowed(&self, kind: Kind, x: View) -> Result<Values> {
        let to = self.values(kind, x.len)?;
        self.branch(x, None, to.view())?;
        Ok(to)
    }

    /// Outputs `o` and log-sum-exps `lse`, see `attention.cu`.
    pub(super) fn attention(
        &self,
        z: Attention,
        qkv: View,
        bias: Option<View>,
        o: View,
        lse: View,
    ) -> Result<()> {
        let kind = qkv.kind;
        qkv.expect(kind, 3 * z.outputs());
        o.expect(kind, z.outputs());
        lse.expect(Kind::F32, z.rows());
        bias.map(|bias| bias.expect(Kind::F32, 3 * z.heads * z.head_width));
        let (kernel, blocks, threads) = z.kernel(kind, false);
        let arguments = [&arguments![qkv, bias, o, lse][..], &z.arguments(&[qkv, o])];
        self.launch(
            &format!("attention_{kernel}"),
            [blocks, z.heads, z.samples],
            threads,
            &arguments.concat(),
        )
    }

    /// The gradient of [`Place::attention`].
    pub(super) fn attention_backward(
        &self,
        z: Attention,
        (qkv, bias): (View, Option<View>),
        (o, lse): (View, View),
        d_o: View,
        d_qkv: View,
    ) -> Result<()> {
        let kind = qkv.kind;
        for (view, n) in [
            (qkv, 3 * z.outputs()),
            (d_qkv, 3 * z.outputs()),
            (o, z.outputs()),
            (d_o, z.outputs()),
        ] {
            view.expect(kind, n);
        }
        lse.expect(Kind::F32, z.rows());
        bias.map(|bias| bias.expect(Kind::F32, 3 * z.heads * z.head_width));
        let delta = self.values(Kind::F32, z.rows())?;
        let sizes = z.arguments(&[qkv, o, d_o, d_qkv]);
        let (given, sums) = (arguments![qkv, bias], arguments![lse, delta.view()]);
        let queries = [&given[..], &arguments![o, d_o], &sums].concat();
        let keys = [&given[..], &arguments![d_o], &sums].concat();
        for (pass, arguments) in [("queries", queries), ("keys", keys)] {
            let (kernel, blocks, threads) = z.kernel(kind, pass == "keys");
            self.launch(
                &format!("attention_{pass}_{kernel}"),
                [blocks, z.heads, z.samples],
                threads,
                &[&arguments[..], &arguments![d_qkv], &sizes].concat(),
            )?;
        }
        Ok(())
    }

    /// Images (b, c, h, w) to patches of `p`, see `embed.cu`.
    pub(super) fn patchify(
        &self,
        (b, c, h, w): (usize, usize, usize, usize),
        p: usize,
        images: View,
        patches: View,
    ) -> Result<()> {
        let count = b * (h / p) * (w / p);
        images.expect(Kind::F32, b * c * h * w);
        patches.expect(Kind::F32, count * c * p * p);
        let arguments = arguments![images, patches, int(c), int(h), int(w), int(p)];
        self.launch("patchify", [count, 1, 1], THREADS, &arguments)
    }

    /// Tokens (b, first + n, d): the table's rows, plus the embedded patches `y` (b, n, d) from row `first` of each
    /// sample.
    pub(super) fn embed(
        &self,
        y: View,
        table: View,
        tokens: View,
        n: usize,
        d: usize,
    ) -> Result<()> {
        let (samples, each) = (y.len / (n * d), table.len / d);
        y.expect(y.kind, samples * n * d);
        table.expect(Kind::F32, each * d);
        tokens.expect(Kind::F32, samples * each * d);
        let rows = samples * each;
        let name = format!("embed_{}", y.kind.name());
        let arguments = arguments![y, table, tokens, int(rows), int(d), int(each - n), int(n)];
        self.launch(&name, [rows.div_ceil(ROWS), 1, 1], THREADS, &arguments)
    }

    /// The gradient with respect to `y` of [`Place::embed`], for tables of `each` tokens.
    pub(super) fn embed_backward(
        &self,
        d_tokens: View,
        dy: View,
        (each, n, d): (usize, usize, usize),
    ) -> Result<()> {
        let rows = dy.len / d;
        dy.expect(dy.kind, rows * d);
        d_tokens.expect(Kind::F32, rows / n * each * d);
        let name = format!("embed_backward_{}", dy.kind.name());
        let arguments = arguments![d_tokens, dy, int(rows), int(d), int(each - n), int(n)];
        self.launch(&name, [rows.div_ceil(ROWS), 1, 1], THREADS, &arguments)
    }

    /// The mean over rows of the soft cross-entropy, one value, see `loss.cu`.
    pub(super) fn soft_cross_entropy(
        &self,
        (rows, classes): (usize, usize),
        logits: View,
        targets: View,
    ) -> Result<Values> {
        let n = rows * classes;
        targets.expect(logits.expect(logits.kind, n).kind, n);
        let losses = self.values(Kind::F32, rows)?;
        let name = format!("soft_cross_entropy_{}", logits.kind.name());
        let arguments = arguments![logits, targets, losses.view(), int(classes)];
        self.launch(&name, [rows, 1, 1], THREADS, &arguments)?;
        let mean = self.values(Kind::F32, 1)?;
        let arguments = arguments![losses.view(), mean.view(), int(rows), 1.0 / rows as f32];
        self.launch("scaled_sum", [1, 1, 1], THREADS, &arguments)?;
        Ok(mean)
    }

    /// The gradient of [`Place::soft_cross_entropy`], given the gradient of the mean.
    pub(super) fn soft_cross_entropy_backward(
        &self,
        (rows, classes): (usize, usize),
        (logits, targets): (View, View),
        d_loss: View,
        d_logits: View,
    ) -> Result<()> {
        let n = rows * classes;
        for view in [logits, targets, d_logits] {
            view.expect(logits.kind, n);
        }
        d_loss.expect(Kind::F32, 1);
        let name = format!("soft_cross_entropy_backward_{}", logits.kind.name());
        let arguments = arguments![
            logits,
            targets,
            d_loss,
            d_logits,
            int(classes),
            1.0 / rows as f32,
        ];
        self.launch(&name, [rows, 1, 1], THREADS, &arguments)
    }

    /// Blocks (layers, r, c, t, t) to weights (layers, r t, c t), or the reverse, see `kron.cu`.
    pub(super) fn kronecker(
        &self,
        join: bool,
        (r, c, t): (usize, usize, usize),
        interleave: bool,
        from: View,
        to: View,
    ) -> Result<()> {
        let n = from.expect(Kind::F32, to.len).len;
        to.expect(Kind::F32, n);
        assert!(n.is_multiple_of(r * c * t * t));
        let name = if join { "kron_join" } else { "kron_cut" };
        let arguments = arguments![from, to, long(n), int(r), int(c), int(t), interleave];
        self.launch(name, [blocks(n), 1, 1], THREADS, &arguments)
    }

    /// Transposes every matrix (rows, cols) of `from`.
    pub(super) fn transpose_each(
        &self,
        (rows, cols): (usize, usize),
        from: View,
        to: View,
    ) -> Result<()> {
        let n = from.expect(Kind::F32, to.len).len;
        to.expect(Kind::F32, n);
        assert!(n.is_multiple_of(rows * cols));
        let arguments = arguments![from, to, long(n), int(rows), int(cols)];
        self.launch("transpose_each", [blocks(n), 1, 1], THREADS, &arguments)
    }

    /// AdamW over a table of `tensors` tensors in `blocks` blocks, see `adamw.cu`; `numbers` are its
    /// constants in the order of its arguments.
    pub(super) fn adamw(
        &self,
        table: View,
        tensors: usize,
        blocks: usize,
        numbers: [f32; 6],
    ) -> Result<()> {
        let mut arguments = vec![table.into(), int(tensors)];
        arguments.extend(numbers.map(Argument::F32));
        self.launch("adamw", [blocks, 1, 1], THREADS, &arguments)
    }

    /// The sum of squares of all gradients in such a table: a double, eight bytes.
    pub(super) fn squares(&self, table: View, tensors: usize, blocks: usize) -> Result<Values> {
        let parts = self.values(Kind::Bytes, 8 * blocks)?;
        let arguments = arguments![table, int(tensors), parts.view()];
        self.launch("squares", [blocks, 1, 1], THREADS, &arguments)?;
        let sum = self.values(Kind::Bytes, 8)?;
        let arguments = arguments![parts.view(), sum.view(), int(blocks)];
        self.launch("add_squares", [1, 1, 1], THREADS, &arguments)?;
        Ok(sum)
    }
}

/// Blocks for `n` values.
fn blocks(n: usize) -> usize {
    n.div_ceil(THREADS as usize)
}

/// Blocks for `n` values, eight for each thread.
fn eights(n: usize) -> usize {
    blocks(n.div_ceil(8))
}

/// Rows per part of a sum over rows, and the number of parts.
fn parts(rows: usize) -> (usize, usize) {
    let count = rows.div_ceil(PART.1).max(PART.0);
    (count, rows.div_ceil(count).max(1))
}

/// The length of the rows that a bias is added to; arbitrary without a bias.
fn row(x: View, bias: Option<View>) -> usize {
    let Some(bias) = bias else { return 1 };
    assert!(bias.kind == Kind::F32 && x.len.is_multiple_of(bias.len));
    bias.len
}

/// Values per sample, each sample with one scale; arbitrary without scales.
fn sample(n: usize, scales: Option<View>) -> usize {
    let Some(scales) = scales else { return 1 };
    assert!(scales.kind == Kind::F32 && n.is_multiple_of(scales.len));
    n / scales.len
}
