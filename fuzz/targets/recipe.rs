//! Recipes; each line after the first `---` is an override.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wave::bench;
use wave::context::Context;
use wave::recipe::Recipe;
use wave::settings::{Condense, Expand, Finetune, Init};

fuzz_target!(|data: &[u8]| {
    let all = String::from_utf8_lossy(data);
    let (text, overrides) = all.split_once("\n---\n").unwrap_or((&all, ""));
    let overrides: Vec<String> = overrides.lines().map(str::to_owned).collect();
    let path = wave_fuzz::file("x.toml", text.as_bytes());
    let Ok(recipe) = Recipe::read(&path, &overrides) else {
        return;
    };
    let _ = recipe.stage::<Condense>("condense", None);
    let _ = recipe.stage::<Expand>("expand", None);
    let _ = recipe.stage::<Finetune>("finetune", None);
    let _ = recipe.stage::<Init>("init", None);
    if recipe.has("bench") {
        let _ = bench::describe(&recipe, None, &Context::default());
    }
});
