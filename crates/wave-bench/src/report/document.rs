//! A report as sections of paragraphs, lists, tables and plots, and as Markdown.
//!
//! Text is plain: each output format escapes its own markup.

/// A report.
pub(super) struct Document {
    pub(super) title: String,
    pub(super) sections: Vec<Section>,
}

/// A section with a heading.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
}

pub(super) enum Block {
    Text(String),
    List(Vec<String>),
    Table(Table),
    Plot(Plot),
}

/// A table; each row has a cell for each column, and the first cell names the row.
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// `strong`, in bold, then the rest.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Cell {
    pub(super) strong: String,
    pub(super) text: String,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell {
            strong: String::new(),
            text: text.into(),
        }
    }
}

/// A picture in a file of its own.
pub(super) struct Plot {
    /// The file's name.
    pub(super) file: String,
    pub(super) title: String,
    pub(super) svg: String,
}

impl Section {
    pub(super) fn new(title: impl Into<String>, blocks: Vec<Block>) -> Section {
        Section {
            title: title.into(),
            blocks,
        }
    }
}

impl Document {
    /// The plots of all sections.
    pub(super) fn plots(&self) -> impl Iterator<Item = &Plot> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        blocks.filter_map(|block| match block {
            Block::Plot(plot) => Some(plot),
            _ => None,
        })
    }

    /// GitHub's Markdown; pictures are links to their files.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("# {}\n", escape(&self.title));
        for section in &self.sections {
            text += &format!("\n## {}\n", escape(&section.title));
            for block in &section.blocks {
                text.push('\n');
                text += &match block {
                    Block::Text(paragraph) => format!("{}\n", escape(paragraph)),
                    Block::List(items) => items
                        .iter()
                        .map(|item| format!("- {}\n", escape(item)))
                        .collect(),
                    Block::Table(table) => markdown_table(table),
                    Block::Plot(plot) => format!("![{}]({})\n", escape(&plot.title), plot.file),
                };
            }
        }
        text
    }
}

fn markdown_table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(table.columns.iter().map(|name| escape(name)).collect());
    text += &format!("|{}\n", "---|".repeat(table.columns.len()));
    for row in &table.rows {
        let cells = row.iter().map(|cell| match cell.strong.is_empty() {
            true => escape(&cell.text),
            false => format!("**{}**{}", escape(&cell.strong), escape(&cell.text)),
        });
        text += &line(cells.collect());
    }
    text
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
#[path = "document_tests.rs"]
mod tests;
