use super::*;

#[test]
fn markdown_has_tables_lists_and_links_and_no_foreign_markup() {
    let cell = Cell {
        strong: "85.03".to_owned(),
        text: " ± 0.30".to_owned(),
    };
    let table = Table {
        columns: vec!["a|b".to_owned(), "c".to_owned()],
        rows: vec![vec!["<b>\n*x*".into(), cell]],
    };
    let plot = Plot {
        file: "curve-6x64.svg".to_owned(),
        title: "curve".to_owned(),
        svg: String::new(),
    };
    let document = Document {
        title: "t".to_owned(),
        sections: vec![Section::new(
            "s",
            vec![
                Block::Text("words".to_owned()),
                Block::List(vec!["one".to_owned(), "two `x`".to_owned()]),
                Block::Table(table),
                Block::Plot(plot),
            ],
        )],
    };
    let expected = "# t\n\n## s\n\nwords\n\n- one\n- two \\`x\\`\n\n| a\\|b | c |\n|---|---|\n\
                    | \\<b> \\*x\\* | **85.03** ± 0.30 |\n\n![curve](curve-6x64.svg)\n";
    assert_eq!(document.markdown(), expected);
}
