use super::*;
use std::collections::BTreeSet;

fn method(start: &str, donor: Option<&str>) -> Method {
    let mut table = Table::from_iter([("start".to_owned(), start.into())]);
    table.extend(donor.map(|donor| ("donor".to_owned(), donor.into())));
    table.try_into().unwrap()
}

#[test]
fn methods_of_one_seed_draw_different_values() {
    let methods = ["timm", "ligo", "prune"].map(|start| method(start, Some("donor")));
    let methods = methods.into_iter().chain([method("timm", None)]);
    let seeds = methods.flat_map(|method| [0, 1, 2].map(|seed| method.fresh_seed(seed)));
    assert_eq!(seeds.collect::<BTreeSet<u64>>().len(), 12);
    assert_eq!(method("timm", None).fresh_seed(7), 7);
    let ligo = method("ligo", Some("donor"));
    assert_eq!(ligo.fresh_seed(1), 0x6624_9f51_4113_9e2b);
}
