//! wave as a library: condenses drawn shapes into weight templates, and makes models of three sizes.
//!
//! ```text
//! cargo run --release -p wave-templates --example condense -- OUT
//! ```

use anyhow::{Context as _, Result, anyhow};
use std::path::Path;
use wave::condense::condense;
use wave::finetune::Options;
use wave::progress::Verbosity;
use wave::recipe::Recipe;
use wave::settings::Condense;
use wave::templates;
use wave_stages::ancestor::Ancestors;

/// A recipe, as a file would have it. The shapes have labels, so no ancestor is needed: with one it is
/// `ancestor = "DIR"`, without `kl_weight`.
const RECIPE: &str = r#"
    [condense]
    data = "shapes"
    train_limit = 1000
    test_limit = 200
    kl_weight = 0
    epochs = 8
    batch = 32
    lr = 2e-3
    depths = [1, 4]
    widths = [32, 64]

    [condense.auxiliary]
    depth = 4
    width = 64
    head_width = 16
    patch = 7
    image_size = 28
"#;

fn main() -> Result<()> {
    let out = std::env::args()
        .nth(1)
        .context("usage: condense OUT, a new directory")?;
    let recipe = Recipe::of_table(RECIPE.parse()?)?;
    // The settings of a table; the last argument goes before them, as the command's flags do.
    let settings: Condense = recipe.stage("condense", None)?;
    let options = Options {
        verbosity: Verbosity::Normal, // progress on stderr; the default is quiet
        ..Options::default()
    };
    let out = Path::new(&out);
    let result = condense(
        &recipe.name,
        &settings,
        &Ancestors::default(),
        out,
        &options,
    )?;
    let accuracies = result["accuracies"]
        .as_array()
        .ok_or(anyhow!("no accuracy was measured"))?;
    for of in accuracies {
        println!("{} x {}: {}", of["depth"], of["width"], of["top1"]);
    }
    let templates = templates::read(out)?;
    for (depth, width) in [(1, 32), (3, 48), (6, 64)] {
        let model = templates.expand(depth, width)?;
        println!("{depth} x {width}: {} parameters", model.parameters());
    }
    Ok(())
}
