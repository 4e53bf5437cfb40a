//! The report as one HTML page, with its plots embedded.

use super::document::{Block, Cell, Document, Table};
use wave_run::html::{document, escape, paragraph, section};

/// A self-contained page without scripts.
pub(super) fn page(report: &Document) -> String {
    let body: String = report
        .sections
        .iter()
        .map(|part| {
            let blocks: String = part.blocks.iter().map(block).collect();
            section(&part.title, &blocks)
        })
        .collect();
    document(&report.title, &body)
}

fn block(block: &Block) -> String {
    match block {
        Block::Text(text) => paragraph(text),
        Block::List(items) => {
            let items: String = items
                .iter()
                .map(|item| format!("<li>{}</li>\n", escape(item)))
                .collect();
            format!("<ul>\n{items}</ul>\n")
        }
        Block::Table(parts) => table(parts),
        Block::Plot(plot) => format!(
            "<figure>{}<figcaption>{}</figcaption></figure>\n",
            plot.svg,
            escape(&plot.title)
        ),
    }
}

/// Scrolls by itself where it is wider than the page.
fn table(table: &Table) -> String {
    let head: String = table
        .columns
        .iter()
        .map(|name| format!("<th scope=\"col\">{}</th>", escape(name)))
        .collect();
    let rows: String = table
        .rows
        .iter()
        .map(|row| {
            let cells = row.iter().enumerate().map(|(i, cell)| match i {
                0 => format!("<th scope=\"row\">{}</th>", content(cell)),
                _ => format!("<td>{}</td>", content(cell)),
            });
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        })
        .collect();
    format!(
        "<div style=\"overflow-x: auto\">\n<table>\n<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>\n\
         {rows}</tbody>\n</table>\n</div>\n"
    )
}

fn content(cell: &Cell) -> String {
    let text = escape(&cell.text);
    match cell.strong.is_empty() {
        true => text,
        false => format!("<strong>{}</strong>{text}", escape(&cell.strong)),
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
