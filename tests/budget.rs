//! `wave expand` with limits in the place of a size.

use crate::support::Place;

#[test]
fn limits_are_kept_and_the_best_size_within_them_is_chosen() {
    let place = Place::with_templates();
    let config: serde_json::Value = serde_json::from_slice(&place.bytes("t/config.json")).unwrap();
    let recorded = config["accuracies"].as_array().unwrap();
    let best = recorded.iter().map(|a| a["top1"].as_f64().unwrap());
    let best = best.fold(0.0, f64::max);

    // Wide limits leave the best of all.
    let free = place.json("expand t --max-params 1G --steps 0 --out free");
    let sizes = free["sizes"].as_array().unwrap();
    assert_eq!(sizes[0]["expected_top1"].as_f64().unwrap(), best);
    assert!(sizes.len() > 1);
    let expected = |i: usize| sizes[i]["expected_top1"].as_f64().unwrap();
    assert!((1..sizes.len()).all(|i| expected(i) <= expected(i - 1)));

    let limits = ["30k", "12000", "45.5k"];
    for (i, (limit, most)) in limits.iter().zip([30_000, 12_000, 45_500]).enumerate() {
        let out = format!("m{i}");
        let made = place.json(&format!(
            "expand t --max-params {limit} --steps 0 --out {out}"
        ));
        assert!(made["parameters"].as_u64().unwrap() <= most);
        let (weights, _) = wave_hub::read_tensors(&place.path(&format!("{out}/model.safetensors")))
            .map(|(w, m): (std::collections::BTreeMap<String, candle_core::Tensor>, _)| (w, m))
            .unwrap();
        let counted: usize = weights.values().map(|t| t.elem_count()).sum();
        assert!(counted as u64 <= most, "{counted} values, at most {most}");
    }

    let narrow = place.json("expand t --width 16 --max-flops 1G --steps 0 --out narrow");
    assert_eq!(narrow["sizes"][0]["width"], 16);
    let fast = place.json("expand t --max-latency-ms 1000 --max-params 30k --steps 0 --out fast");
    let latency = fast["sizes"][0]["latency_ms"].as_f64().unwrap();
    assert!(latency > 0.0 && latency <= 1000.0);

    let plan = place.stdout("expand t --max-params 30k --steps 0 --dry-run --out none");
    assert!(plan.contains("expected top-1") && !place.path("none").exists());
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let place = Place::with_templates();
    for (flags, needle) in [
        ("--max-params 10", "smallest"),
        ("--max-params many", "many"),
        ("--max-latency-ms 0", "max_latency_ms"),
        ("--max-latency-ms 0.0000001", "smallest"),
        ("--max-params 1M --depth 2 --width 16", "leave out"),
        ("--max-params 1M --width 17", "17"),
    ] {
        let refused = place.run(&format!("expand t {flags} --steps 0 --out o"));
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{flags}: {said}");
        assert!(said.contains(needle), "{flags}: {said}");
        assert!(!place.path("o").exists());
    }
}
