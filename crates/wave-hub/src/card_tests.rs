use super::*;

#[test]
fn a_card_has_a_head_a_title_and_a_body() {
    let front = CardFront {
        license: Some("apache-2.0".to_owned()),
        tags: vec!["image-classification".to_owned(), "1.0".to_owned()],
        datasets: vec!["owner/set".to_owned()],
        results: [("top-1 at 6 x 64", 0.9), ("top-1 at 12 x 64", 0.90125)]
            .map(|(name, accuracy)| CardResult {
                dataset: "owner/set".to_owned(),
                name: name.to_owned(),
                accuracy,
            })
            .to_vec(),
        base_model: Some("timm/levit_384.fb_dist_in1k".to_owned()),
        library_name: Some("timm".to_owned()),
        pipeline_tag: Some("image-classification".to_owned()),
    };
    let expected = "\
---
license: apache-2.0
library_name: timm
pipeline_tag: image-classification
base_model: timm/levit_384.fb_dist_in1k
datasets:
- owner/set
metrics:
- accuracy
tags:
- image-classification
- \"1.0\"
model-index:
- name: \"Six layers\"
  results:
  - task:
      type: image-classification
    dataset:
      type: owner/set
      name: owner/set
    metrics:
    - type: accuracy
      name: \"top-1 at 6 x 64\"
      value: 0.9000
    - type: accuracy
      name: \"top-1 at 12 x 64\"
      value: 0.9012
---

# Six layers

A *body*.

    with code
";
    let body = "\nA *body*.\n\n    with code\n\n";
    assert_eq!(model_card(&front, "Six\nlayers ", body), expected);
    let empty = model_card(&CardFront::default(), "T", "\n");
    assert_eq!(empty, "---\n---\n\n# T\n");
}

#[test]
fn a_licence_is_read_and_replaced() {
    let root = tempfile::tempdir().unwrap();
    let read = |card: &str| {
        std::fs::write(root.path().join(CARD_FILE), card).unwrap();
        card_license(root.path())
    };
    for (card, expected) in [
        ("---\nlicense: mit\n---\n", Some("mit")),
        ("---\r\na: b\r\nlicense: \"mit\"\r\n---\r\n", Some("mit")),
        ("---\nlicense:\n- mit\ntags:\n- a\n---\n# A\n", Some("mit")),
        ("---\ntags:\n- a\n---\nlicense: mit\n", None),
        ("---\nlicense: unknown\n---\n", None),
        ("---\nlicense: {a: b}\n---\n", None),
        ("license: mit\n", None),
        ("", None),
    ] {
        assert_eq!(read(card).as_deref(), expected, "{card}");
        if split(card).is_some() {
            let replaced = with_license(card, "bsd-3-clause");
            assert_eq!(read(&replaced).unwrap(), "bsd-3-clause");
        }
    }
    let listed = "---\ntags:\n- a\nlicense:\n- b\n- c\nx: y\n---\n# T\n";
    let replaced = "---\nlicense: mit\ntags:\n- a\nx: y\n---\n# T\n";
    assert_eq!(with_license(listed, "mit"), replaced);
    assert_eq!(card_license(&root.path().join("nowhere")), None);
}

#[test]
fn what_yaml_could_misread_is_quoted() {
    for (text, expected) in [
        ("mit", "mit"),
        ("No", "\"No\""),
        ("null", "\"null\""),
        ("", "\"\""),
        ("- item", "\"- item\""),
        ("a: b", "\"a: b\""),
        ("two words # hash", "\"two words # hash\""),
        ("say \"x\\y\"", "\"say \\\"x\\\\y\\\"\""),
        ("---\nlicense: other", "\"---\\u000alicense: other\""),
        ("\u{85}\u{2028}", "\"\\u0085\\u2028\""),
        ("été", "\"été\""),
    ] {
        assert_eq!(scalar(text), expected);
    }
}
