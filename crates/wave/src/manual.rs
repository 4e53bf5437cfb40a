//! `wave man`: manual pages from the same declarations as `--help`.

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use serde_json::{Value, json};
use std::path::Path;
use wave_run::paths;

/// Writes a page for the program and one for each of its commands into `dir`, under the names that `man`
/// expects: `wave.1`, `wave-expand.1`, `wave-data-check.1`. Returns the output of `--json`.
pub fn write(command: Command, dir: &Path) -> Result<Value> {
    wave_hub::prepare_out(dir)?;
    let mut command = command.disable_help_subcommand(true);
    command.build(); // gives the commands their full names
    let mut pages = Vec::new();
    write_page(&command, dir, &mut pages)?;
    pages.sort();
    Ok(json!({ "out": paths::text(dir), "pages": pages }))
}

fn write_page(command: &Command, dir: &Path, pages: &mut Vec<String>) -> Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text).context("cannot render the manual")?;
    let name = page.get_filename();
    wave_hub::write_atomic(&dir.join(&name), &text)?;
    pages.push(name);
    for inner in command.get_subcommands() {
        write_page(inner, dir, pages)?;
    }
    Ok(())
}
