use super::*;

#[test]
fn braces_expand_as_in_a_shell() {
    let expand = |pattern: &str| braces(pattern).unwrap();
    assert_eq!(
        expand("a/{008..011}.tar"),
        ["a/008.tar", "a/009.tar", "a/010.tar", "a/011.tar"]
    );
    assert_eq!(expand("{a,b}{1..2}"), ["a1", "a2", "b1", "b2"]);
    assert_eq!(expand("plain.tar"), ["plain.tar"]);
    for wrong in [
        "a{1..",
        "a{x..3}",
        "a{3..1}",
        "{1..99999999}",
        "{1..9999}{1..9999}",
    ] {
        assert!(braces(wrong).unwrap_err().is_request(), "{wrong}");
    }
}

#[test]
fn stars_match_and_commas_part() {
    assert!(matches_star("train-001.tar", "train*.tar"));
    assert!(matches_star("abcabc", "a*b*c"));
    assert!(!matches_star("train.parquet", "train*.tar"));
    assert!(!matches_star("ab", "ab*b"));
    assert_eq!(split("a{1,2}.tar,b.tar"), ("a{1,2}.tar", Some("b.tar")));
    assert_eq!(split("a{1,2}.tar"), ("a{1,2}.tar", None));
}
