use super::*;
use crate::report::document::{Plot, Section};

#[test]
fn a_page_has_everything_in_it_and_no_foreign_markup() {
    let evil = "<script>alert('1')</script>";
    let cell = Cell {
        strong: evil.to_owned(),
        text: evil.to_owned(),
    };
    let blocks = vec![
        Block::Text(evil.to_owned()),
        Block::List(vec![evil.to_owned()]),
        Block::Table(Table {
            columns: vec![evil.to_owned(), "b".to_owned()],
            rows: vec![vec![evil.into(), cell]],
        }),
        Block::Plot(Plot {
            file: "a.svg".to_owned(),
            title: evil.to_owned(),
            svg: "<svg></svg>".to_owned(),
        }),
    ];
    let page = page(&Document {
        title: evil.to_owned(),
        sections: vec![Section::new(evil, blocks)],
    });
    assert!(!page.contains("<script"));
    // The title twice, heading, text, item, column, row, cell twice, caption.
    assert_eq!(page.matches("&lt;script&gt;").count(), 10);
    assert!(page.contains("<svg></svg>") && page.contains("<strong>&lt;script"));
}
