use super::*;
use crate::report::fixture::Fixture;

fn list(section: Option<Section>) -> Vec<String> {
    let blocks = section.unwrap().blocks.into_iter();
    blocks
        .flat_map(|block| match block {
            Block::List(items) => items,
            _ => Vec::new(),
        })
        .collect()
}

#[test]
fn rates_say_what_they_were_chosen_from_and_where_that_ends() {
    let mut fixture = Fixture::new(&["a", "b", "c"]);
    let grid = vec![(5e-4, 0.777), (1e-3, 0.7996), (2e-3, 0.8)];
    for (method, lr, grid) in [
        ("a", 1e-3, Vec::new()),
        ("b", 2e-3, grid.clone()),
        ("c", 1e-3, grid),
    ] {
        let method = method.to_owned();
        fixture.rates.push(Rates { method, lr, grid });
    }
    assert_eq!(
        list(rates(&fixture.findings())),
        [
            "a: 1e-3 (given)",
            "b: 2e-3 of 5e-4: 77.70 %, 1e-3: 79.96 %, 2e-3: 80.00 %; the highest of them, so that \
             a higher one may be better",
            "c: 1e-3 of 5e-4: 77.70 %, 1e-3: 79.96 %, 2e-3: 80.00 %",
        ]
    );
}

#[test]
fn epochs_are_told_from_the_start_and_the_end() {
    let reach = |epochs, reached| epoch(Reach { epochs, reached });
    assert_eq!(reach(0.0, true), "0, at the start");
    assert_eq!(reach(2.34567, true), "2.35");
    assert_eq!(reach(10.0, false), "not within 10");
}
