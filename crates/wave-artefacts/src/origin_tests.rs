use super::*;

fn here(dir: &Path, provenance: &Value) -> Value {
    of(dir, provenance, &Context::default())
}

fn card_of(provenance: &Value) -> String {
    card(CardFront::default(), provenance, "T", "Text.")
}

#[test]
fn a_card_says_the_licence_or_why_there_is_none() {
    let origin = |licenses: Value| {
        let origin = json!({ "base_models": ["o/n"], "licenses": licenses });
        json!({ "data": "fashion-mnist", "origin": origin })
    };
    let known = card_of(&origin(json!(["mit"])));
    for line in [
        "license: mit",
        "base_model: o/n",
        "- zalando-datasets/fashion_mnist",
    ] {
        assert!(known.contains(&format!("\n{line}\n")), "{known}");
    }
    assert!(!known.contains("not stated"), "{known}");
    let unnamed = "o/n, whose card names no licence";
    let two = origin(json!(["mit", "cc-by-4.0"]));
    for (provenance, why) in [
        (Value::Null, "derive from no other trained model"),
        (origin(json!([null])), unnamed),
        (origin(json!(["mit", null])), unnamed),
        (two, "models under mit and cc-by-4.0"),
    ] {
        let text = card_of(&provenance);
        assert!(text.contains("The licence is not stated:"), "{text}");
        assert!(text.contains(why) && !text.contains("\nlicense:"), "{text}");
    }
}

#[test]
fn an_origin_is_handed_on_and_the_cards_word_counts() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let foreign = json!({ "base_models": [], "licenses": [null] });
    assert_eq!(here(dir, &Value::Null), foreign);
    for config in [
        r#"{ "license": "cc-by-4.0" }"#,
        r#"{ "pretrained_cfg": { "license": "cc-by-4.0" } }"#,
    ] {
        std::fs::write(dir.join("config.json"), config).unwrap();
        assert_eq!(here(dir, &Value::Null)["licenses"], json!(["cc-by-4.0"]));
    }
    std::fs::write(dir.join("config.json"), r#"{ "license": "a: b" }"#).unwrap();
    assert_eq!(here(dir, &Value::Null), foreign);
    assert_eq!(here(dir, &json!({ "stage": "init" })), Value::Null);
    let inherited = json!({ "base_models": ["a/b"], "licenses": ["mit"] });
    let made = json!({ "origin": inherited });
    assert_eq!(here(dir, &made), inherited);
    std::fs::write(dir.join("README.md"), "---\nlicense: cc-by-4.0\n---\n").unwrap();
    let stated = json!({ "base_models": ["a/b"], "licenses": ["cc-by-4.0"] });
    assert_eq!(here(dir, &made), stated);
    let own = json!({ "base_models": [], "licenses": ["cc-by-4.0"] });
    assert_eq!(here(dir, &Value::Null), own);
    // The weights in the directory stand for it.
    let weights = dir.join("model.safetensors");
    std::fs::write(&weights, "").unwrap();
    assert_eq!(here(&weights, &Value::Null), own);
    let joined = json!({ "base_models": ["a/b"], "licenses": ["cc-by-4.0", "mit"] });
    assert_eq!(both(&stated, &inherited), joined);
    assert_eq!(both(&Value::Null, &own), own);
    assert_eq!(both(&own, &Value::Null), own);
}

#[test]
fn a_published_card_names_the_repository_and_the_licence() {
    let body = "timm.create_model(\"local-dir:DIR\")\nwave expand DIR --depth 6\nx.from_pretrained(\"DIR\")";
    let local = card(CardFront::default(), &Value::Null, "T", body);
    let text = published(&local, "you/ft", None);
    for part in [
        "create_model(\"hf-hub:you/ft\")",
        "wave expand hf:you/ft --depth",
        "from_pretrained(\"you/ft\")",
        "The licence is not stated:",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let shown = illustrated(&text);
    assert!(shown.contains("\n# T\n\n![](picture.png)\n\n"), "{shown}");
    assert_eq!(illustrated(&shown), shown);
    let text = published(&local, "you/ft", Some("mit"));
    assert!(text.starts_with("---\nlicense: mit\n"), "{text}");
    assert!(!text.contains("not stated"), "{text}");
}
