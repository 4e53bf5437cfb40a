//! The equation by hand: reads a template file and composes the queries, keys and values of a layer,
//! `W_l = sum_i S_{l,i} (x) T_i`, then compares them with the library's.
//!
//! ```text
//! cargo run --release -p wave-templates --example compose -- templates/fashion-mnist LAYER
//! ```

use anyhow::{Context as _, Result, bail};
use std::path::Path;
use wave::templates;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, layer] = &arguments[..] else {
        bail!("usage: compose TEMPLATES LAYER");
    };
    let (dir, layer) = (Path::new(dir), layer.parse::<usize>()?);
    let file = wave_hub::read_weights(&dir.join("templates.safetensors"))?;
    let tensor = |name: &str| file.get(name).with_context(|| format!("no tensor {name}"));

    // At the auxiliary's depth each layer has an anchor of the bank to itself; other depths interpolate
    // between two.
    let t = tensor("templates.qkv")?.to_vec3::<f32>()?; // (N, side, side)
    let s = tensor(&format!("bank.{layer}.qkv"))?.to_vec3::<f32>()?; // (N, rows / side, columns / side)
    let side = t[0].len();
    let (rows, columns) = (side * s[0].len(), side * s[0][0].len());
    // Block (r, c) of the weight is the sum of all templates, each times its scaler at (r, c).
    let weight = |row: usize, column: usize| -> f32 {
        let (r, c) = (row / side, column / side);
        let terms = s.iter().zip(&t);
        terms
            .map(|(s, t)| s[r][c] * t[row % side][column % side])
            .sum()
    };

    let templates = templates::read(dir)?;
    let auxiliary = &templates.learngene.auxiliary;
    let model = templates.expand(auxiliary.depth, auxiliary.width)?;
    let name = format!("blocks.{layer}.attn.qkv.weight");
    let expected = model.weights[&name].to_vec2::<f32>()?;
    let mut largest = 0f32;
    for (row, values) in expected.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            largest = largest.max((value - weight(row, column)).abs());
        }
    }
    let n = t.len();
    println!("{name}: {rows} x {columns} of {n} templates of {side} x {side}");
    println!("largest difference from the library's: {largest:e}");
    Ok(())
}
