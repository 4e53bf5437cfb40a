use super::*;
use serde_json::Map;

/// Names give the same facts as timm's registry (`make_registered.py`).
#[test]
fn names_tell_what_timm_registers() {
    let text = include_str!("../../tests/fixtures/registered.txt");
    assert!(text.lines().count() > 200);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let name = words[0];
        let told = named(name);
        let [width, heads, eps, between, pooling, rotary] = words[1..] else {
            assert_eq!(words[1], "refused", "{line}");
            assert!(told.is_none(), "{name} is read");
            continue;
        };
        let told = told.unwrap_or_else(|| panic!("{name} is not read"));
        let (width, said): (usize, usize) = (width.parse().unwrap(), heads.parse().unwrap());
        let found = heads::of_width(name, &Map::new(), Some(width));
        assert_eq!(found, Some(said), "{name}");
        assert_eq!(told.norm_eps, eps.parse::<f64>().unwrap(), "{name}");
        assert_eq!(format!("{:?}", told.between), between, "{name}");
        assert_eq!(format!("{:?}", told.pooling), pooling, "{name}");
        let found = match told.rotary {
            None => "none",
            Some(Rotary::Neighbours { .. }) => "neighbours",
            Some(Rotary::Halves) => "halves",
        };
        assert_eq!(found, rotary, "{name}");
    }
}
