use super::*;
use crate::testing::check_refused;

#[test]
fn names_read_back() {
    for (text, shown) in [
        ("hf:timm/levit_384.fb", "hf:timm/levit_384.fb@main"),
        ("o/n@refs/pr/1", "hf:o/n@refs/pr/1"),
        ("hf:o/n@v1.0", "hf:o/n@v1.0"),
        ("hf-hub:o/n@v1.0", "hf:o/n@v1.0"),
    ] {
        assert_eq!(text.parse::<HubName>().unwrap().to_string(), shown);
    }
}

#[test]
fn names_that_no_hub_has_are_refused() {
    for text in [
        "", "hf:", "name", "/", "o/", "/n", "o/n/m", "../n", "o/..", "o/n--m", "o/-n", "o/n.",
        "o/n m", "o/\u{e9}", "o\\n/m",
    ] {
        check_refused(text.parse::<HubName>(), &["repository", "OWNER/NAME"]);
    }
    for revision in [
        "", "../../x", "a/../b", "/a", "a//b", "a b", "-f", ".x", "a@b", "a\nb",
    ] {
        check_refused(format!("o/n@{revision}").parse::<HubName>(), &["revision"]);
    }
}
