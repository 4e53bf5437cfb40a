use super::*;

fn check(own: &[&str], names: &[&str], expected: Option<&str>) {
    let of = |names: &[&str]| -> Vec<String> { names.iter().map(|n| n.to_string()).collect() };
    let found = difference("D", &of(own), &of(names));
    assert_eq!(found.as_deref(), expected, "{own:?} {names:?}");
}

#[test]
fn names_differ_only_where_both_are_known() {
    check(&["cat", "dog"], &["cat", "dog"], None);
    check(&["T-shirt_top", "bag"], &["T-shirt/top", "Bag"], None);
    check(&["0", "1"], &["cat", "dog"], None);
    check(&["1", "10", "2"], &["one", "two", "ten"], None);
    check(&["cat", "dog"], &["LABEL_0", "LABEL_1"], None);
    check(&["n01440764", "n01443537"], &["tench", "goldfish"], None);
    check(&[], &["cat"], None);
    check(
        &["tench", "church"],
        &["boot", "bag"],
        Some("class 0 is tench in D, boot in the model"),
    );
    check(
        &["bag", "boot", "cat"],
        &["bag", "cat", "boot"],
        Some("class 1 is boot in D, cat in the model (the same names in another order)"),
    );
    // Names in other scripts than ASCII differ too.
    check(
        &["猫", "犬"],
        &["犬", "猫"],
        Some("class 0 is 猫 in D, 犬 in the model (the same names in another order)"),
    );
}
