//! Heat maps of selected matrices.

use anyhow::Result;
use candle_core::Tensor;
use std::collections::BTreeMap;
use wave_learngene::Learngene;
use wave_models::vit::{self, VitShape};
use wave_models::{Network, Weights};
use wave_run::data::{TestImages, images_of};
use wave_run::error::request;

/// One matrix: name, rows, columns, values row by row.
pub(super) type Panel = (String, usize, usize, Vec<f32>);

/// Matrices of one kind.
pub(super) struct Picture {
    /// File name without extension.
    pub(super) name: String,
    pub(super) title: String,
    /// Number of panels in a row.
    pub(super) columns: usize,
    pub(super) panels: Vec<Panel>,
}

impl Picture {
    fn new(name: &str, title: &str, columns: usize, panels: Vec<Panel>) -> Picture {
        Picture {
            name: name.to_owned(),
            title: title.to_owned(),
            columns,
            panels,
        }
    }
}

/// The templates, set by set.
pub(super) fn templates(gene: &Learngene) -> Result<Vec<Picture>> {
    let picture = |(set, t): (&String, &Tensor)| {
        let panels = (0..t.dim(0)?).map(|i| panel(format!("{set} {i}"), &t.get(i)?));
        let (name, title) = (format!("templates-{set}"), format!("Templates of {set}"));
        let panels = panels.collect::<Result<_>>()?;
        Ok(Picture::new(&name, &title, 8, panels))
    };
    gene.templates.iter().map(picture).collect()
}

/// The scaler bank: a panel per anchor and part.
pub(super) fn bank(gene: &Learngene) -> Result<Vec<Picture>> {
    let mut by_layer = BTreeMap::new();
    for (part, bank) in &gene.bank {
        for k in 0..bank.dim(0)? {
            by_layer.insert((k, part.name().to_owned()), bank.get(k)?); // (N, r, c)
        }
    }
    let title = "Scaler bank: for each anchor and part, the blocks of each template";
    scaler_picture("bank", title, "anchor", &by_layer)
}

/// The scalers of a model among some tensors, `scalers.{layer}.{part}`: a panel for each.
pub(super) fn scalers(tensors: &Weights) -> Result<Vec<Picture>> {
    let by_layer = tensors
        .iter()
        .filter(|(_, t)| t.rank() == 3 && t.elem_count() > 0)
        .filter_map(|(name, t)| {
            let (layer, part) = name.strip_prefix("scalers.")?.split_once('.')?;
            Some(((layer.parse().ok()?, part.to_owned()), t.clone()))
        })
        .collect();
    let title = "Scalers: for each layer and part, the blocks of each template";
    scaler_picture("scalers", title, "layer", &by_layer)
}

fn scaler_picture(
    name: &str,
    title: &str,
    layer: &str,
    scalers: &BTreeMap<(usize, String), Tensor>,
) -> Result<Vec<Picture>> {
    if scalers.is_empty() {
        return Ok(Vec::new());
    }
    let panels = scalers
        .iter()
        .map(|((l, part), t)| mosaic(format!("{layer} {l} {part}"), t))
        .collect::<Result<_>>()?;
    Ok(vec![Picture::new(name, title, 4, panels)]) // a column for each part
}

/// Tiles the matrices (N, r, c) into one, with a common scale: left to right, then down, separated by lines of NaN,
/// about as wide as it is high.
fn mosaic(name: String, t: &Tensor) -> Result<Panel> {
    let (n, r, c) = t.dims3()?;
    let values: Vec<f32> = t.flatten_all()?.to_vec1()?;
    let wide = |across: &usize| {
        let (width, height) = (across * (c + 1), n / across * (r + 1));
        (width as f64 / height as f64).ln().abs()
    };
    let divisors = (1..=n).filter(|across| n.is_multiple_of(*across));
    let across = divisors
        .min_by(|a, b| wide(a).total_cmp(&wide(b)))
        .unwrap_or(1);
    let down = n / across;
    let (rows, cols) = (down * (r + 1) - 1, across * (c + 1) - 1);
    let mut all = vec![f32::NAN; rows * cols];
    for i in 0..n {
        let (top, left) = (i / across * (r + 1), i % across * (c + 1));
        for y in 0..r {
            let from = (i * r + y) * c;
            let to = (top + y) * cols + left;
            all[to..to + c].copy_from_slice(&values[from..from + c]);
        }
    }
    Ok((name, rows, cols, all))
}

/// `W_Q W_K^T` of each head and `W_V W_proj` of each layer, in the convention `y = x W`.
pub(super) fn attention(shape: &VitShape, weights: &Weights) -> Result<Vec<Picture>> {
    let (d, h) = (shape.width, shape.head_width());
    let (mut qk, mut vp) = (Vec::new(), Vec::new());
    for l in 0..shape.depth {
        let qkv = &weights[&format!("blocks.{l}.attn.qkv.weight")]; // (3 d, d)
        let proj = &weights[&format!("blocks.{l}.attn.proj.weight")]; // (d, d)
        for head in 0..shape.heads {
            let q = qkv.narrow(0, head * h, h)?; // (h, d), the transpose of W_Q
            let k = qkv.narrow(0, d + head * h, h)?;
            let name = format!("layer {l} head {head}");
            qk.push(panel(name, &q.t()?.matmul(&k)?)?);
        }
        let v = qkv.narrow(0, 2 * d, d)?.t()?.contiguous()?;
        let product = v.matmul(&proj.t()?.contiguous()?)?;
        vp.push(panel(format!("layer {l}"), &product)?);
    }
    let of_qk = "Query-key products, W_Q W_K^T, of each head";
    let of_vp = "Value-projection products, W_V W_proj, of each layer";
    Ok(vec![
        Picture::new("query-key", of_qk, shape.heads, qk),
        Picture::new("value-projection", of_vp, 4, vp),
    ])
}

/// Number of images that attention maps are averaged over.
pub(super) const MAP_IMAGES: usize = 64;

/// Attention maps of each layer, averaged over heads and test images: see [`vit::attention_maps`].
pub(super) fn attention_maps(
    shape: &VitShape,
    weights: &Weights,
    tests: &TestImages,
) -> Result<Picture> {
    let batch = tests.batches(MAP_IMAGES).next();
    let batch = batch.ok_or_else(|| request("there are no images"))??;
    let size = batch.size;
    let maps = vit::attention_maps(shape, weights, &images_of(batch)?)?;
    let panels = maps.iter().enumerate();
    let panels = panels.map(|(l, map)| panel(format!("layer {l}"), map));
    let title = format!("Attention maps of each layer, averaged over heads and {size} images");
    let panels = panels.collect::<Result<_>>()?;
    Ok(Picture::new("attention-maps", &title, 4, panels))
}

/// Depthwise filters, a panel for each layer, and the patch embedding, a panel for each colour channel, of
/// networks that have such filters.
pub(super) fn filters(network: &Network, weights: &Weights) -> Result<Vec<Picture>> {
    let (stem, filters): (_, Vec<String>) = match network {
        Network::ConvMixer(shape) => {
            let blocks = (0..shape.depth).map(|l| format!("blocks.{l}.0.fn.0.weight"));
            ("stem.0.weight".to_owned(), blocks.collect())
        }
        Network::ConvNext(shape) => {
            let blocks = shape.blocks().into_iter();
            let blocks = blocks.map(|(block, ..)| format!("{block}.conv_dw.weight"));
            (shape.stem(), blocks.collect())
        }
        _ => return Ok(Vec::new()),
    };
    let patches = &weights[&stem]; // (width, c, p, p)
    let channel = |c: usize| {
        let of_channel = patches.narrow(1, c, 1)?.squeeze(1)?; // (width, p, p)
        mosaic(format!("channel {c}"), &of_channel)
    };
    let layer = |l: usize| {
        let filters = weights[&filters[l]].squeeze(1)?; // (width, k, k)
        mosaic(format!("layer {l}"), &filters)
    };
    let layers = (0..network.size().0).map(layer).collect::<Result<_>>()?;
    let channels = (0..patches.dim(1)?).map(channel).collect::<Result<_>>()?;
    let of_channels = "Patch embedding of each colour channel";
    Ok(vec![
        Picture::new("filters", "Depthwise filters of each layer", 4, layers),
        Picture::new("patch-embedding", of_channels, 3, channels),
    ])
}

fn panel(name: String, t: &Tensor) -> Result<Panel> {
    let (rows, cols) = t.dims2()?;
    Ok((name, rows, cols, t.flatten_all()?.to_vec1()?))
}

/// At most `most` evenly spaced rows and columns of a matrix, and their stride.
pub(super) fn thin(panel: &Panel, most: usize) -> (Panel, usize) {
    let (name, rows, cols, values) = panel;
    let stride = (*rows.max(cols)).div_ceil(most.max(1)).max(1);
    let (r, c) = (rows.div_ceil(stride), cols.div_ceil(stride));
    let row = |y: usize| (0..c).map(move |x| values[y * stride * cols + x * stride]);
    ((name.clone(), r, c, (0..r).flat_map(row).collect()), stride)
}

#[cfg(test)]
#[path = "pictures_tests.rs"]
mod tests;
