//! Starts kernels: grids and arguments, as `kernels/*.cu` declare them. Sizes are checked here.

use super::{Argument, Kind, Place, Values, View, int, long};
use candle_core::Result;

/// Threads of a block, for kernels that have none of their own.
const THREADS: u32 = 256;
/// Rows of a block where a warp has a row; see `common.h`.
const ROWS: usize = 8;
/// Threads of a warp.
const LANES: usize = 32;
/// Channels of a head, at most.
pub(super) const WIDEST_HEAD: usize = 128;
/// Rows of a part of a sum over columns, at least, and parts, at most.
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
    /// Values of one row for each token and channel.
    fn outputs(&self) -> usize {
        self.samples * self.tokens * self.heads * self.head_width
    }

    /// Values of one for each token and head.
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

    /// The end of a kernel's name, and its rows of a block.
    fn kernel(&self, kind: Kind) -> (String, usize) {
        let width = self.head_width.next_power_of_two().max(16);
        assert!(width <= WIDEST_HEAD, "heads of {}", self.head_width);
        let rows = match kind {
            Kind::Bf16 => 64,
            _ => 32,
        };
        let rows = if width <= 64 { rows } else { rows / 2 };
        (format!("{}_{width}", kind.name()), rows)
    }
}

impl Place {
    /// `y` (rows, d) of `x` (rows, d), see `layer_norm.cu`.
    pub(super) fn layer_norm(&self, x: View, w: View, b: View, eps: f32, y: View) -> Result<()> {
        let (d, n) = (w.len, x.len);
        let rows = n / d;
        x.expect(Kind::F32, rows * d);
        b.expect(Kind::F32, d);
        y.expect(y.kind, n);
        let name = format!("layer_norm_{}", y.kind.name());
        let arguments = [
            x.into(),
            w.into(),
            b.into(),
            y.into(),
            int(rows),
            int(d),
            eps.into(),
        ];
        self.launch(&name, [rows.div_ceil(ROWS), 1, 1], THREADS, &arguments)
    }

    /// The gradient of [`Place::layer_norm`]: of `x`, added to `dx` if `add`; of the weight to `dw`, of the
    /// bias to `db`.
    pub(super) fn layer_norm_backward(
        &self,
        (x, w, eps): (View, View, f32),
        dy: View,
        (dx, add): (View, bool),
        dw: View,
        db: View,
    ) -> Result<()> {
        let (d, n) = (w.len, x.len);
        let rows = n / d;
        x.expect(Kind::F32, rows * d);
        dy.expect(dy.kind, n);
        dx.expect(Kind::F32, n);
        dw.expect(Kind::F32, d);
        db.expect(Kind::F32, d);
        let statistics = self.values(Kind::F32, 2 * rows)?;
        let name = format!("layer_norm_rows_{}", dy.kind.name());
        let arguments = [
            x.into(),
            w.into(),
            dy.into(),
            dx.into(),
            statistics.view().into(),
            int(rows),
            int(d),
            eps.into(),
            add.into(),
        ];
        self.launch(&name, [rows.div_ceil(ROWS), 1, 1], THREADS, &arguments)?;

        let (count, parts) = parts(rows);
        let sums = self.values(Kind::F32, parts * 2 * d)?;
        let name = format!("layer_norm_columns_{}", dy.kind.name());
        let arguments = [
            x.into(),
            dy.into(),
            statistics.view().into(),
            sums.view().into(),
            int(rows),
            int(d),
            int(count),
        ];
        self.launch(&name, [d.div_ceil(LANES), parts, 1], THREADS, &arguments)?;
        self.add_parts(sums.view(), parts, 2 * d, dw)?;
        let bias = sums.view().part(d, (parts * 2 - 1) * d);
        self.add_parts(bias, parts, 2 * d, db)
    }

    /// The sums of the rows of `x` (rows, d), see `columns.cu`.
    pub(super) fn column_sums(&self, x: View, sums: View) -> Result<()> {
        let d = sums.expect(Kind::F32, sums.len).len;
        let rows = x.len / d;
        x.expect(x.kind, rows * d);
        let (count, parts) = parts(rows);
        let partial = self.values(Kind::F32, parts * d)?;
        let name = format!("column_sums_{}", x.kind.name());
        let arguments = [
            x.into(),
            partial.view().into(),
            int(rows),
            int(d),
            int(count),
        ];
        let grid = [d.div_ceil(THREADS as usize), parts, 1];
        self.launch(&name, grid, THREADS, &arguments)?;
        self.add_parts(partial.view(), parts, d, sums)
    }

    fn add_parts(&self, parts: View, count: usize, stride: usize, sums: View) -> Result<()> {
        let d = sums.len;
        assert!((count - 1) * stride + d <= parts.len);
        let arguments = [parts.into(), sums.into(), int(count), int(d), int(stride)];
        self.launch("add_parts", [d.div_ceil(LANES), 1, 1], THREADS, &arguments)
    }

    /// `y = gelu(z + bias)`, see `gelu.cu`; the bias is added to every row as long as it.
    pub(super) fn gelu(&self, z: View, bias: Option<View>, y: View) -> Result<()> {
        let n = y.expect(z.kind, z.len).len;
        let name = format!("gelu_{}", z.kind.name());
        let d = row(z, bias);
        let arguments = [z.into(), bias.into(), y.into(), long(n), int(d)];
        self.launch(&name, [eights(n), 1, 1], THREADS, &arguments)
    }

    /// The gradient of [`Place::gelu`], and `y` again where it is wanted.
    pub(super) fn gelu_backward(
        &self,
        z: View,
        bias: Option<View>,
        dy: View,
        dx: View,
        y: Option<View>,
    ) -> Result<()> {
        let n = z.len;
        for view in [Some(dy), Some(dx), y].into_iter().flatten() {
            view.expect(z.kind, n);
        }
        let name = format!("gelu_backward_{}", z.kind.name());
        let arguments = [
            z.into(),
            bias.into(),
            dy.into(),
            dx.into(),
            y.into(),
            long(n),
            int(row(z, bias)),
        ];
        self.launch(&name, [eights(n), 1, 1], THREADS, &arguments)
    }

    /// `y = x + s (a + bias)` with the scales of samples, see `residual.cu`.
    pub(super) fn residual(
        &self,
        x: View,
        a: View,
        bias: View,
        scales: Option<View>,
        y: View,
    ) -> Result<()> {
        let n = x.expect(Kind::F32, y.len).len;
        a.expect(a.kind, n);
        let name = format!("residual_{}", a.kind.name());
        let arguments = [
            x.into(),
            a.into(),
            bias.into(),
            scales.into(),
            y.expect(Kind::F32, n).into(),
            long(n),
            int(row(a, Some(bias))),
            int(sample(n, scales)),
        ];
        self.launch(&name, [eights(n), 1, 1], THREADS, &arguments)
    }

    /// `s g`, the gradient of the branch of [`Place::residual`], in the kind of `to`.
    pub(super) fn branch(&self, g: View, scales: Option<View>, to: View) -> Result<()> {
        let n = g.expect(Kind::F32, to.len).len;
        let name = format!("branch_{}", to.kind.name());
        let arguments = [
            g.into(),
            scales.into(),
            to.into(),
            long(n),
            int(sample(n, scales)),
        ];
        self.launch(&name, [eights(n), 1, 1], THREADS, &arguments)
    }

    /// Outputs `o` and logarithms of sums `lse`, see `attention.cu`.
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
        let (kernel, rows) = z.kernel(kind);
        let arguments = [
            &[qkv.into(), bias.into(), o.into(), lse.into()][..],
            &z.arguments(&[qkv]),
        ];
        self.launch(
            &format!("attention_{kernel}"),
            [z.tokens.div_ceil(rows), z.heads, z.samples],
            (rows / 16 * LANES) as u32,
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
        let arguments = [
            o.into(),
            d_o.into(),
            delta.view().into(),
            int(z.samples),
            int(z.tokens),
            int(z.heads),
            int(z.head_width),
        ];
        let name = format!("attention_delta_{}", kind.name());
        self.launch(&name, [z.rows().div_ceil(ROWS), 1, 1], THREADS, &arguments)?;
        let (kernel, rows) = z.kernel(kind);
        let arguments = [
            &[
                qkv.into(),
                bias.into(),
                d_o.into(),
                lse.into(),
                delta.view().into(),
                d_qkv.into(),
            ][..],
            &z.arguments(&[qkv, d_o]),
        ];
        for side in ["keys", "queries"] {
            self.launch(
                &format!("attention_{side}_{kernel}"),
                [z.tokens.div_ceil(rows), z.heads, z.samples],
                (rows / 16 * LANES) as u32,
                &arguments.concat(),
            )?;
        }
        Ok(())
    }

    /// The mean over rows of a soft cross-entropy, one value, see `loss.cu`.
    pub(super) fn soft_cross_entropy(
        &self,
        z: Loss,
        logits: View,
        targets: View,
    ) -> Result<Values> {
        let n = z.rows * z.classes;
        targets.expect(logits.expect(logits.kind, n).kind, n);
        let losses = self.values(Kind::F32, z.rows)?;
        let name = format!("soft_cross_entropy_{}", logits.kind.name());
        let arguments = [
            logits.into(),
            targets.into(),
            losses.view().into(),
            int(z.classes),
            (1.0 / z.temperature).into(),
            z.of_logits.into(),
        ];
        self.launch(&name, [z.rows, 1, 1], THREADS, &arguments)?;
        let mean = self.values(Kind::F32, 1)?;
        let arguments = [
            losses.view().into(),
            mean.view().into(),
            int(z.rows),
            (1.0 / z.rows as f32).into(),
        ];
        self.launch("scaled_sum", [1, 1, 1], THREADS, &arguments)?;
        Ok(mean)
    }

    /// The gradient of [`Place::soft_cross_entropy`], given that of the mean.
    pub(super) fn soft_cross_entropy_backward(
        &self,
        z: Loss,
        (logits, targets): (View, View),
        d_loss: View,
        d_logits: View,
    ) -> Result<()> {
        let n = z.rows * z.classes;
        for view in [logits, targets, d_logits] {
            view.expect(logits.kind, n);
        }
        d_loss.expect(Kind::F32, 1);
        let name = format!("soft_cross_entropy_backward_{}", logits.kind.name());
        let arguments = [
            logits.into(),
            targets.into(),
            d_loss.into(),
            d_logits.into(),
            int(z.classes),
            (1.0 / z.temperature).into(),
            z.of_logits.into(),
            (1.0 / z.rows as f32).into(),
        ];
        self.launch(&name, [z.rows, 1, 1], THREADS, &arguments)
    }

    /// Blocks (layers, r, c, t, t) to weights (layers, r t, c t), or back, see `kron.cu`.
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
        let arguments = [
            from.into(),
            to.into(),
            long(n),
            int(r),
            int(c),
            int(t),
            interleave.into(),
        ];
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
        let arguments = [from.into(), to.into(), long(n), int(rows), int(cols)];
        self.launch("transpose_each", [blocks(n), 1, 1], THREADS, &arguments)
    }

    /// AdamW over a table of `tensors` tensors that take `blocks` blocks, see `adamw.cu`; `numbers` are
    /// its constants in the order of its arguments.
    pub(super) fn adamw(
        &self,
        table: View,
        tensors: usize,
        blocks: usize,
        numbers: [f32; 7],
    ) -> Result<()> {
        let mut arguments = vec![table.into(), int(tensors)];
        arguments.extend(numbers.map(Argument::F32));
        self.launch("adamw", [blocks, 1, 1], THREADS, &arguments)
    }

    /// The sum of the squares of the gradients of such a table: eight bytes of a double.
    pub(super) fn squares(&self, table: View, tensors: usize, blocks: usize) -> Result<Values> {
        let parts = self.values(Kind::Bytes, 8 * blocks)?;
        let arguments = [table.into(), int(tensors), parts.view().into()];
        self.launch("squares", [blocks, 1, 1], THREADS, &arguments)?;
        let sum = self.values(Kind::Bytes, 8)?;
        let arguments = [parts.view().into(), sum.view().into(), int(blocks)];
        self.launch("add_squares", [1, 1, 1], THREADS, &arguments)?;
        Ok(sum)
    }
}

/// Sizes of a loss, and the kind of its targets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) rows: usize,
    pub(super) classes: usize,
    /// Logits are divided by it.
    pub(super) temperature: f32,
    /// Targets are logits too, whose softmax is meant.
    pub(super) of_logits: bool,
}

/// Blocks for `n` values.
fn blocks(n: usize) -> usize {
    n.div_ceil(THREADS as usize)
}

/// Blocks for `n` values, eight for each thread.
fn eights(n: usize) -> usize {
    blocks(n.div_ceil(8))
}

/// Rows of each part of a sum over rows, and parts.
fn parts(rows: usize) -> (usize, usize) {
    let count = rows.div_ceil(PART.1).max(PART.0);
    (count, rows.div_ceil(count).max(1))
}

/// The length of the rows that a bias is added to; any where there is none.
fn row(x: View, bias: Option<View>) -> usize {
    let Some(bias) = bias else { return 1 };
    assert!(bias.kind == Kind::F32 && x.len.is_multiple_of(bias.len));
    bias.len
}

/// Values of a sample, each sample with one scale; any number where there are no scales.
fn sample(n: usize, scales: Option<View>) -> usize {
    let Some(scales) = scales else { return 1 };
    assert!(scales.kind == Kind::F32 && n.is_multiple_of(scales.len));
    n / scales.len
}
