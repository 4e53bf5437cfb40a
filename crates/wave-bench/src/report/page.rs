//! The page of a report, in GitHub's Markdown, with its plots in files next to it.
//!
//! Text is plain: markup in it is escaped here.

use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;

pub(super) struct Page<'a> {
    text: String,
    out: &'a Path,
    /// Names of the plots so far.
    plots: BTreeSet<String>,
}

/// A cell of a table: `strong` in bold, then the rest.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Cell {
    pub(super) strong: String,
    pub(super) text: String,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }
}

impl<'a> Page<'a> {
    pub(super) fn new(title: &str, out: &'a Path) -> Page<'a> {
        Page {
            text: format!("# {}\n", escape(title)),
            out,
            plots: BTreeSet::new(),
        }
    }

    pub(super) fn section(&mut self, title: &str) {
        self.text += &format!("\n## {}\n", escape(title));
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.text += &format!("\n{}\n", escape(text));
    }

    /// Writes the section title, if not empty, and the introduction, once and before the first item.
    pub(super) fn once(&mut self, intro: &mut Option<(&str, &str)>) {
        if let Some((title, text)) = intro.take() {
            if !title.is_empty() {
                self.section(title);
            }
            self.paragraph(text);
        }
    }

    pub(super) fn list(&mut self, items: impl IntoIterator<Item = String>) {
        let line = |item: String| format!("- {}\n", escape(&item));
        let lines: String = items.into_iter().map(line).collect();
        self.text += &format!("\n{lines}");
    }

    /// Each row has a cell for each column.
    pub(super) fn table<C: Into<Cell>>(
        &mut self,
        columns: &[impl AsRef<str>],
        rows: impl IntoIterator<Item = Vec<C>>,
    ) {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let head = columns.iter().map(|name| escape(name.as_ref()));
        self.text += &format!(
            "\n{}|{}\n",
            line(head.collect()),
            "---|".repeat(columns.len())
        );
        for row in rows {
            let cells = row.into_iter().map(|cell| {
                let Cell { strong, text } = cell.into();
                match strong.is_empty() {
                    true => escape(&text),
                    false => format!("**{}**{}", escape(&strong), escape(&text)),
                }
            });
            self.text += &line(cells.collect());
        }
    }

    /// An image, written to a file named after the non-empty `parts`.
    pub(super) fn plot(&mut self, parts: &[&str], title: &str, svg: &str) -> Result<()> {
        let parts: Vec<&str> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
        // No character that paths or links treat specially.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let mut name = parts.join("-").replace(|c: char| !plain(c), "-");
        while !self.plots.insert(name.clone()) {
            name += "-2";
        }
        let file = format!("{name}.svg");
        wave_hub::write_atomic(&self.out.join(&file), svg.as_bytes())?;
        self.text += &format!("\n![{}]({file})\n", escape(title));
        Ok(())
    }

    /// Writes `report.md`, and returns it.
    pub(super) fn finish(&self) -> Result<String> {
        wave_hub::write_atomic(&self.out.join("report.md"), self.text.as_bytes())?;
        Ok(self.text.clone())
    }
}

/// Text on one line, with Markdown's markup escaped.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if matches!(c, '\\' | '|' | '*' | '`' | '<' | '[' | ']') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_has_tables_lists_and_links_and_no_foreign_markup() {
        let dir = tempfile::tempdir().unwrap();
        let mut page = Page::new("t", dir.path());
        page.section("s");
        page.paragraph("words");
        page.list(["one".to_owned(), "two `x`".to_owned()]);
        let cell = Cell {
            strong: "85.03".to_owned(),
            text: " ± 0.30".to_owned(),
        };
        page.table(&["a|b", "c"], [vec!["<b>\n*x*".into(), cell]]);
        page.plot(&["curve", "", "a/b"], "curve", "svg").unwrap();
        let expected = "# t\n\n## s\n\nwords\n\n- one\n- two \\`x\\`\n\n| a\\|b | c |\n|---|---|\n\
                        | \\<b> \\*x\\* | **85.03** ± 0.30 |\n\n![curve](curve-a-b.svg)\n";
        assert_eq!(page.finish().unwrap(), expected);
        assert!(dir.path().join("curve-a-b.svg").exists());
    }

    #[test]
    fn plots_of_names_that_differ_in_other_letters_have_a_file_each() {
        let dir = tempfile::tempdir().unwrap();
        let mut page = Page::new("t", dir.path());
        for svg in ["ä", "ö"] {
            page.plot(&["sizes", svg], svg, svg).unwrap();
        }
        let text = page.finish().unwrap();
        for (svg, file) in [("ä", "sizes--.svg"), ("ö", "sizes---2.svg")] {
            assert!(text.contains(&format!("![{svg}]({file})")), "{text}");
            assert_eq!(std::fs::read_to_string(dir.path().join(file)).unwrap(), svg);
        }
    }
}
