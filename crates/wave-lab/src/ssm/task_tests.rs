use super::*;
use std::collections::BTreeSet;

fn task(spec: &str) -> Task {
    spec.parse().unwrap()
}

/// The first sequence of a batch, whole: the input, and the end.
fn whole(batch: &TokenBatch) -> Vec<u32> {
    let n = batch.tokens.len() / batch.size;
    let mut tokens = batch.tokens[..n].to_vec();
    tokens.push(END);
    tokens
}

#[test]
fn answers_are_what_the_tasks_ask_for() {
    type Answer = fn(&mut [u32]);
    let answers: [(&str, Answer); 3] = [
        ("copy:length=7", |_| {}),
        ("stack:length=7", |s| s.reverse()),
        ("sort:length=7,symbols=9", |s| {
            s.sort_unstable();
            assert!(s.windows(2).all(|pair| pair[0] < pair[1]));
        }),
    ];
    for (spec, answer) in answers {
        let batch = TaskLoader::new(task(spec), 3, 1).unwrap().batch(4);
        let tokens = whole(&batch);
        assert_eq!(tokens.len(), 17, "{spec}");
        assert_eq!((tokens[0], tokens[8]), (BEGIN, BAR));
        let mut expected = tokens[1..8].to_vec();
        assert!(expected.iter().all(|t| *t >= FIRST_SYMBOL));
        answer(&mut expected);
        assert_eq!(tokens[9..16], expected, "{spec}");
        // Each position predicts the token after it: the answer and the end.
        assert_eq!(batch.positions, (8..16).collect::<Vec<_>>());
        assert_eq!(batch.targets[..8], tokens[9..], "{spec}");
        assert_eq!((batch.size, batch.targets.len()), (3, 24));
    }
}

#[test]
fn recall_asks_for_the_value_of_every_key_once() {
    let task = task("recall:length=5,symbols=6");
    assert_eq!(task.vocabulary(), 15);
    let loader = TaskLoader::new(task, 2, 0).unwrap();
    let mut moved = false;
    for step in 0..20 {
        let batch = loader.batch(step);
        let tokens = whole(&batch);
        let [given, asked] = [&tokens[1..11], &tokens[12..22]];
        moved |= given != asked;
        let [pairs, asked] =
            [given, asked].map(|part| part.chunks(2).collect::<BTreeSet<&[u32]>>());
        assert_eq!(pairs, asked);
        let keys: BTreeSet<u32> = pairs.iter().map(|pair| pair[0]).collect();
        assert_eq!(keys.len(), 5);
        assert!(keys.iter().all(|key| (3..9).contains(key)));
        assert!(pairs.iter().all(|pair| (9..15).contains(&pair[1])));
        assert_eq!(batch.positions, [12, 14, 16, 18, 20, 21]);
        let answers = batch.positions.iter().map(|p| tokens[*p as usize + 1]);
        assert!(answers.eq(batch.targets[..6].iter().copied()));
    }
    assert!(moved);
}

#[test]
fn batches_are_functions_of_seed_and_step() {
    let loader = |seed| TaskLoader::new(task("copy:length=4..9"), 5, seed).unwrap();
    assert_eq!(loader(1).batch(7), loader(1).batch(7));
    assert_ne!(loader(1).batch(7), loader(1).batch(8));
    assert_ne!(loader(1).batch(7), loader(2).batch(7));
    let lengths: BTreeSet<usize> = (0..60)
        .map(|step| loader(0).batch(step).positions.len() - 1)
        .collect();
    assert_eq!(lengths, (4..=9).collect());
    assert_eq!(loader(0).steps_per_epoch(), 2560);
}

#[test]
fn test_sequences_come_in_batches_of_any_size() {
    let task = task("copy:length=4,symbols=5");
    let all = |batch| -> Vec<u32> {
        let batches = task.test_batches(8, 10, batch);
        batches.into_iter().flat_map(|b| b.tokens).collect()
    };
    assert_eq!(all(10), all(3));
    assert_eq!(all(4).len(), 10 * 18);
    // Training never includes them, even with their seed.
    let task = "copy:length=9".parse::<Task>().unwrap();
    let tests = task.test_batches(9, 1, 1).remove(0);
    let loader = TaskLoader::new(task, 1, TEST_SEED).unwrap();
    assert!((0..50).all(|step| loader.batch(step).tokens != tests.tokens));
}

/// A file of the first 300 lines `0 abcdef`, `1 abcdef`, ..
fn text_file() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..300).map(|i| format!("{i} abcdef\n")).collect();
    std::fs::write(dir.path().join("text.txt"), text).unwrap();
    dir
}

#[test]
fn of_a_text_every_position_predicts_the_next_character() {
    let dir = text_file();
    let spec = format!("text:{},length=20", dir.path().join("text.txt").display());
    let text = task(&spec);
    let characters = "\n 0123456789abcdef";
    assert_eq!(text.vocabulary(), 18);
    let whole = std::fs::read_to_string(dir.path().join("text.txt")).unwrap();
    let (train, test) = whole.split_at(whole.len() - whole.len() / 10);
    let words = |tokens: &[u32]| -> String {
        let one = |t: &u32| characters.chars().nth(*t as usize).unwrap();
        tokens.iter().map(one).collect()
    };
    let loader = TaskLoader::new(text.clone(), 7, 1).unwrap();
    for step in 0..20 {
        let batch = loader.batch(step);
        assert_eq!(batch.positions, (0..20).collect::<Vec<_>>());
        for row in 0..7 {
            let (from, to) = (row * 20, row * 20 + 20);
            assert_eq!(batch.tokens[from + 1..to], batch.targets[from..to - 1]);
            let window = words(&batch.tokens[from..to]) + &words(&batch.targets[to - 1..to]);
            assert!(train.contains(&window), "{window}");
        }
    }
    // All windows of the test part, one after another.
    let tests = text.test_batches(20, 1000, 4);
    let tokens: Vec<u32> = tests.iter().flat_map(|b| b.tokens.clone()).collect();
    let sequences: usize = tests.iter().map(|b| b.size).sum();
    assert_eq!(sequences, (test.len() - 1) / 20);
    assert_eq!(words(&tokens), test[..20 * sequences]);
    let some = text.test_batches(20, 3, 4);
    assert_eq!((some.len(), some[0].size), (1, 3));
}

#[test]
fn a_directory_of_texts_is_one_text() {
    let dir = text_file();
    std::fs::write(dir.path().join("a.txt"), "ä".repeat(90)).unwrap();
    std::os::unix::fs::symlink("a.txt", dir.path().join("b.txt")).unwrap();
    let text = task(&format!("text:{}", dir.path().display()));
    assert_eq!((text.vocabulary(), text.lengths), (19, (64, 64)));
    assert!(text.has(327) && !text.has(328)); // a tenth of 3,280 characters, without the link
    let refused = |spec: String, needle: &str| {
        let error = spec.parse::<Task>().unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    };
    let path = |name: &str| format!("text:{}", dir.path().join(name).display());
    std::fs::write(dir.path().join("short"), "abc").unwrap();
    std::fs::write(dir.path().join("binary"), [0xff; 200]).unwrap();
    refused(path("short"), "at least 100");
    refused(path("binary"), "UTF-8");
    refused(path("none"), "none");
    refused("text:/dev/null".to_owned(), "regular file");
    refused(path("text.txt,length=3000"), "a tenth of the text");
}

#[test]
fn specifications_are_read_and_checked() {
    for (spec, needle) in [
        ("paste", "is not a task"),
        ("copy:length=0", "from 1 to"),
        ("copy:length=x", "`x`"),
        ("copy:width=3", "is not a size of a task"),
        ("copy:length=9..4", "lengths are 9 to 4"),
        ("sort:length=20,symbols=10", "number of different symbols"),
        ("recall:length=17", "number of different symbols"),
    ] {
        let error = spec.parse::<Task>().unwrap_err();
        assert!(error.to_string().contains(needle), "{error}");
    }
    assert!(TaskLoader::new(task("copy"), 0, 0).is_err());
}

#[test]
fn parts_of_sequences_are_the_whole() {
    let batch = TaskLoader::new(task("copy:length=3"), 6, 0)
        .unwrap()
        .batch(2);
    let parts = batch.split(3).unwrap();
    let parts: Vec<TokenBatch> = parts.iter().map(|rows| batch.select(rows)).collect();
    let joined = |of: fn(&TokenBatch) -> &Vec<u32>| -> Vec<u32> {
        parts.iter().flat_map(|part| of(part).clone()).collect()
    };
    assert_eq!(joined(|part| &part.tokens), batch.tokens);
    assert_eq!(joined(|part| &part.targets), batch.targets);
    assert_eq!(parts[1].input().unwrap().dims(), [2, 8]);
}

#[test]
fn a_sequence_is_exact_when_every_token_is_right() {
    let batch = TokenBatch {
        tokens: vec![0; 6],
        positions: vec![1, 2],
        targets: vec![1, 0, 1, 1],
        size: 2,
    };
    let rows = [[[0.0f32, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]];
    let (scores, exact) = evaluate(&[batch], |tokens, positions| {
        assert_eq!((tokens.dims(), positions.dims()), (&[2, 3][..], &[2][..]));
        Tensor::new(&rows, &Device::Cpu)
    })
    .unwrap();
    assert_eq!((exact, scores.top1, scores.images), (0.5, 0.75, 4));
    let right = (1.0 + (-1f64).exp()).ln();
    assert!((scores.loss - (right + 0.25)).abs() < 1e-6);
}
