use serde_json::json;

use super::*;
use crate::testing::check_refused;

fn read(json: &str) -> Result<Tokenizer, DataError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, json).unwrap();
    Tokenizer::read(&path)
}

const WORDS: &str = r#"{
    "version": "1.0", "truncation": {"direction": "Right", "max_length": 2,
    "strategy": "LongestFirst", "stride": 0},
    "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
    "pad_id": 5, "pad_type_id": 0, "pad_token": "e"},
    "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2, "e": 5}, "unk_token": "?"}}"#;

#[test]
fn words_become_tokens_neither_cut_nor_padded() {
    let tokenizer = read(WORDS).unwrap();
    assert_eq!(tokenizer.encode("a b c a").unwrap(), [0, 1, 2, 0]);
    assert_eq!(tokenizer.padding, Some(5));
    let short = tokenizer.truncated(3).unwrap();
    assert_eq!(short.encode("a b c a").unwrap(), [0, 1, 2]);
}

#[test]
fn a_text_without_tokens_for_it_is_an_error() {
    let tokenizer = read(&WORDS.replace(r#""unk_token": "?""#, r#""unk_token": "!""#)).unwrap();
    check_refused(tokenizer.encode("a z"), &["cannot be encoded"]);
}

/// `WORDS` with another part.
fn with(part: &str, value: &str) -> String {
    WORDS.replace(
        &format!("\"{part}\": null"),
        &format!("\"{part}\": {value}"),
    )
}

fn charsmap(table: &str) -> String {
    json!({"type": "Precompiled", "precompiled_charsmap": table}).to_string()
}

#[test]
fn what_is_no_tokenizer_or_trips_the_library_is_refused_by_its_path() {
    let nested = "{\"type\": \"Sequence\", \"decoders\": [".repeat(60) + &"]}".repeat(60);
    let brackets = "[".repeat(100_000) + &"]".repeat(100_000);
    let vocabulary = r#"{"a": 0, "b": 1, "?": 2, "e": 5}"#;
    for file in [
        "",
        "{}",
        "[1]",
        r#"{"model": {"type": "WordLevel"}}"#,
        &WORDS.replace(vocabulary, "{}"),
        &WORDS.replace("WordLevel", "Nothing"),
        &with("normalizer", &charsmap("/////w==")),
        &with("normalizer", &charsmap("")),
        &with("normalizer", &format!("[{}]", charsmap("/////w=="))),
        &with("decoder", &nested),
        &with("decoder", &brackets),
    ] {
        check_refused(read(file), &["tokenizer.json: is not a tokenizer ("]);
    }
    // A trie of -1: out of bounds once it is used.
    let found = read(&with("normalizer", &charsmap("BAAAAP////8=")));
    check_refused(found.and_then(|t| t.encode("a b")), &["tokenizer.json"]);
    let pairs = r#"{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]],
        "continuing_subword_prefix": "\u00e9", "unk_token": null}"#;
    let model = WORDS.find("\"model\": ").unwrap() + "\"model\": ".len();
    match read(&format!("{}{pairs}}}", &WORDS[..model])) {
        Ok(tokenizer) => drop(tokenizer.encode("ab a")),
        Err(error) => assert!(error.is_request(), "{error}"),
    }
}

fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

#[test]
fn a_text_that_grows_without_bound_is_refused() {
    let read_with = |steps: &[Value]| {
        let sequence = json!({"type": "Sequence", "normalizers": steps});
        read(&with("normalizer", &sequence.to_string())).unwrap()
    };
    for pattern in [json!({"String": "a"}), json!({"Regex": "a"})] {
        let bomb = vec![replace(pattern, &"a".repeat(1000)); 5];
        let encoded = read_with(&bomb).encode("a b");
        check_refused(encoded, &["its normalizer may make"]);
    }
    let few = [
        replace(json!({"String": "a"}), "b"),
        replace(json!({"Regex": "a"}), "aaaa"),
    ];
    assert_eq!(read_with(&few).encode("a b").unwrap(), [1, 1]);
}
