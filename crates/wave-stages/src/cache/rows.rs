//! Outputs of images in a cache: encoded, merged, looked up.

use candle_core::{DType, Device, Result, Tensor};
use std::ops::Range;
use wave_hub::Weights;
use wave_run::settings::{AncestorOutput, Top};

/// Smallest log-probability kept, within the range of f16.
const LEAST: f64 = -60_000.0;
/// Largest feature value kept, the largest number of f16.
const LARGEST: f32 = 65_504.0;
/// Marks an image that is not in a view.
const ABSENT: u32 = u32::MAX;

/// Encoding of the outputs of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Number of the ancestor's classes or features.
    pub(super) width: usize,
    /// Features are stored as they are, class scores as log-probabilities.
    pub(super) output: AncestorOutput,
    /// Number of classes kept, unless all are.
    pub(super) kept: Option<usize>,
}

impl Format {
    /// Keeps all features; of classes, the most probable ones, or all if that takes no more space.
    pub(super) fn new(output: AncestorOutput, top: Top, width: usize) -> Format {
        let kept = match (output, top) {
            (AncestorOutput::Scores, Top::Most(k)) => Some(k.min(width)),
            _ => None,
        };
        let some = Format {
            width,
            output,
            kept,
        };
        let all = Format { kept: None, ..some };
        match some.bytes_per_image() < all.bytes_per_image() {
            true => some,
            false => all,
        }
    }

    pub(super) fn bytes_per_image(self) -> usize {
        match self.kept {
            None => 4 + 2 * self.width,
            Some(k) => 4 + (2 + self.class_bytes()) * k + 2,
        }
    }

    fn class_bytes(self) -> usize {
        let largest = self.width.saturating_sub(1) as u64;
        (8 - largest.leading_zeros() as usize / 8).max(1)
    }

    /// Number of log-probabilities per image.
    fn columns(self) -> usize {
        self.kept.unwrap_or(self.width)
    }

    /// The tensors of a shard with `n` images.
    fn tensors(self, n: usize) -> Vec<(&'static str, DType, Vec<usize>)> {
        let k = self.columns();
        let mut all = vec![
            ("images", DType::U32, vec![n]),
            ("log_p", DType::F16, vec![n, k]),
        ];
        if self.kept.is_some() {
            all.push(("classes", DType::U8, vec![n, k, self.class_bytes()]));
            all.push(("rest", DType::F16, vec![n]));
        }
        all
    }
}

/// The outputs of some images.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// Indices, ascending, (n).
    images: Vec<u32>,
    /// The tensors of a shard, by [`Format::tensors`].
    pub(super) table: Weights,
}

impl Rows {
    pub(super) fn none(format: Format) -> Result<Rows> {
        Rows::new(&[], &[], format)
    }

    /// Encodes outputs (n, width), row by row, of ascending images.
    pub(super) fn new(images: &[u32], outputs: &[f32], format: Format) -> Result<Rows> {
        let (n, k, w) = (images.len(), format.columns(), format.class_bytes());
        let mut log_p = Vec::with_capacity(n * k);
        let mut classes: Vec<u8> = Vec::new();
        let mut rest: Vec<f32> = Vec::new();
        for z in outputs.chunks_exact(format.width.max(1)) {
            if format.output == AncestorOutput::Features {
                log_p.extend(z.iter().map(|z| z.clamp(-LARGEST, LARGEST)));
                continue;
            }
            let z: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
            let total = log_sum_exp(z.iter().copied());
            let keep = |z: f64| (z - total).clamp(LEAST, 0.0) as f32;
            if format.kept.is_none() {
                log_p.extend(z.iter().map(|z| keep(*z)));
                continue;
            }
            let mut order: Vec<usize> = (0..z.len()).collect();
            // A stable sort: among equal logits the first class comes first.
            order.sort_by(|a, b| z[*b].total_cmp(&z[*a]));
            for &class in &order[..k] {
                log_p.push(keep(z[class]));
                classes.extend(&class.to_le_bytes()[..w]);
            }
            rest.push(keep(log_sum_exp(order[k..].iter().map(|c| z[*c]))));
        }
        let half = |values: Vec<f32>, shape: &[usize]| -> Result<Tensor> {
            Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(DType::F16)
        };
        let numbers = Tensor::from_slice(images, n, &Device::Cpu)?;
        let mut table = Weights::from([
            ("images".to_owned(), numbers),
            ("log_p".to_owned(), half(log_p, &[n, k])?),
        ]);
        if format.kept.is_some() {
            let classes = Tensor::from_vec(classes, (n, k, w), &Device::Cpu)?;
            table.insert("classes".to_owned(), classes);
            table.insert("rest".to_owned(), half(rest, &[n])?);
        }
        let images = images.to_vec();
        Ok(Rows { images, table })
    }

    /// The images of `wanted` that are missing; both are ascending.
    pub(super) fn missing(&self, wanted: &[u32]) -> Vec<u32> {
        let absent = |i: &&u32| self.images.binary_search(i).is_err();
        wanted.iter().filter(absent).copied().collect()
    }

    /// The union with other images, disjoint from these.
    pub(super) fn merge(&self, other: &Rows) -> Result<Rows> {
        if self.images.is_empty() {
            return Ok(other.clone());
        }
        let both = Rows::joined(&[self.clone(), other.clone()])?;
        let mut order: Vec<u32> = (0..both.images.len() as u32).collect();
        order.sort_by_key(|at| both.images[*at as usize]);
        let images = order.iter().map(|at| both.images[*at as usize]).collect();
        let order = Tensor::new(&order[..], &Device::Cpu)?;
        let sorted = |(name, t): (String, Tensor)| Ok((name, t.index_select(&order, 0)?));
        let table = both.table.into_iter().map(sorted).collect::<Result<_>>()?;
        Ok(Rows { images, table })
    }

    fn joined(all: &[Rows]) -> Result<Rows> {
        let join = |name: &String| {
            let parts: Vec<&Tensor> = all.iter().map(|rows| &rows.table[name]).collect();
            Ok((name.clone(), Tensor::cat(&parts, 0)?))
        };
        let names = all.first().into_iter().flat_map(|rows| rows.table.keys());
        Ok(Rows {
            images: all.iter().flat_map(|rows| &rows.images).copied().collect(),
            table: names.map(join).collect::<Result<_>>()?,
        })
    }

    /// The rows of a shard with images in `range`, or the error in it.
    pub(super) fn from_table(
        table: &Weights,
        format: Format,
        range: Range<u32>,
    ) -> std::result::Result<Rows, String> {
        let n = table.get("images").map_or(0, Tensor::elem_count);
        let take = |(name, dtype, shape): (&str, DType, Vec<usize>)| match table.get(name) {
            Some(t) if t.dtype() == dtype && t.dims() == shape => Ok((name.to_owned(), t.clone())),
            Some(t) => Err(format!(
                "{name} is {:?} {:?}, expected {dtype:?} {shape:?}",
                t.dtype(),
                t.dims()
            )),
            None => Err(format!("has no tensor {name}")),
        };
        let own = format.tensors(n).into_iter().map(take);
        let own: Weights = own.collect::<std::result::Result<_, _>>()?;
        let images = own["images"].to_vec1::<u32>().map_err(|e| e.to_string())?;
        if !images.is_sorted_by(|a, b| a < b) || images.iter().any(|i| !range.contains(i)) {
            return Err(format!(
                "its image numbers are not in ascending order within {range:?}"
            ));
        }
        Ok(Rows { images, table: own })
    }
}

/// The outputs of all training images in a view.
pub(super) struct View {
    format: Format,
    /// The row of each image of the source, or [`ABSENT`].
    places: Vec<u32>,
    rows: Rows,
}

impl View {
    pub(super) fn new(shards: &[Rows], format: Format, source_images: usize) -> Result<View> {
        let rows = match shards {
            [] => Rows::none(format)?,
            shards => Rows::joined(shards)?,
        };
        let mut places = vec![ABSENT; source_images];
        for (row, image) in rows.images.iter().enumerate() {
            // The cache may hold images that are not in this run's training set.
            if let Some(place) = places.get_mut(*image as usize) {
                *place = row as u32;
            }
        }
        Ok(View {
            format,
            places,
            rows,
        })
    }

    /// Outputs (b, width) on images; logits up to a constant for each image.
    pub(super) fn outputs(&self, images: &[u32]) -> Result<Tensor> {
        let place = |i: &u32| match self.places.get(*i as usize) {
            Some(&row) if row != ABSENT => Ok(row),
            _ => candle_core::bail!("the cache holds no outputs of image {i}"),
        };
        let places: Vec<u32> = images.iter().map(place).collect::<Result<_>>()?;
        let (b, n) = (places.len(), self.format.width);
        let places = Tensor::from_vec(places, b, &Device::Cpu)?;
        let table = &self.rows.table;
        let placed = |t: &Tensor| t.index_select(&places, 0)?.to_dtype(DType::F32);
        let log_p = placed(&table["log_p"])?; // (b, k)
        let (Some(classes), Some(rest)) = (table.get("classes"), table.get("rest")) else {
            return Ok(log_p);
        };
        let (k, w) = (self.format.columns(), self.format.class_bytes());
        let spread = ((n - k) as f32).ln();
        let rest = placed(rest)?.to_vec1::<f32>()?;
        let log_p = log_p.flatten_all()?.to_vec1::<f32>()?;
        let classes = classes.index_select(&places, 0)?.flatten_all()?;
        let classes = classes.to_vec1::<u8>()?;
        let mut logits = Vec::with_capacity(b * n);
        for row in 0..b {
            logits.resize((row + 1) * n, rest[row] - spread);
            for at in row * k..(row + 1) * k {
                let number = classes[at * w..(at + 1) * w].iter().rev();
                let class = number.fold(0, |c, byte| c << 8 | *byte as usize);
                if class >= n {
                    candle_core::bail!("the cache holds class {class}, expected less than {n}");
                }
                logits[row * n + class] = log_p[at];
            }
        }
        Tensor::from_vec(logits, (b, n), &Device::Cpu)
    }

    /// Sum over the images of the probabilities that were not kept.
    pub(super) fn rest(&self) -> Result<f64> {
        let Some(rest) = self.rows.table.get("rest") else {
            return Ok(0.0);
        };
        let rest = rest.to_dtype(DType::F64)?.exp()?;
        rest.sum_all()?.to_scalar::<f64>()
    }

    pub(super) fn images(&self) -> usize {
        self.rows.images.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.images() * self.format.bytes_per_image() + 4 * self.places.len()
    }
}

fn log_sum_exp(z: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = z.clone().fold(f64::NEG_INFINITY, f64::max);
    if !max.is_finite() {
        return max;
    }
    max + z.map(|z| (z - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
