//! `wave expand` with limits on the size.

use crate::support::Place;

#[test]
fn limits_are_kept_and_the_best_size_within_them_is_chosen() {
    let place = Place::with_templates();
    let config = place.config("t");
    let recorded = config["accuracies"].as_array().unwrap();
    let best = recorded.iter().map(|a| a["top1"].as_f64().unwrap());
    let best = best.fold(0.0, f64::max);

    // Wide limits give the best recorded size.
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
        let weights = place.tensors(&format!("{out}/model.safetensors"));
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
fn sizes_that_are_equal_within_noise_are_chosen_by_their_work() {
    let place = Place::with_templates();
    // All accuracies equal, except for the last, which differs by less than a tenth of a point.
    let mut config = place.config("t");
    let accuracies = config["accuracies"].as_array_mut().unwrap();
    let last = accuracies.len() - 1;
    for (i, accuracy) in accuracies.iter_mut().enumerate() {
        accuracy["top1"] = if i == last { 0.8005 } else { 0.8 }.into();
    }
    place.write("t/config.json", config.to_string());
    let made = place.json("expand t --max-params 1M --out m");
    let sizes = made["sizes"].as_array().unwrap();
    assert!(sizes.iter().all(|size| size["equal_within_noise"] == true));
    assert_eq!(
        (&sizes[0]["depth"], &sizes[0]["width"]),
        (&1.into(), &16.into())
    );
    // The alias of a limit, as a flag and as a key.
    for limit in [
        "--max-macs 1G",
        "--max-flops 1G",
        "--set expand.max_flops=1G",
    ] {
        let plan = place.stdout(&format!("expand t {limit} --dry-run"));
        assert!(
            plan.contains("equal within noise (0.1 points)"),
            "{limit}: {plan}"
        );
    }
    // Printed once, before the work.
    let (told, said) = place.texts("expand t --max-params 1M --out n");
    assert_eq!(said.matches("expected top-1").count(), 1, "{said}");
    assert!(
        !told.contains("multiply adds") && told.contains("expected top-1"),
        "{told}"
    );
}

#[test]
fn what_is_expected_is_told_where_nothing_is_measured() {
    let place = Place::with_templates();
    let config = place.config("t");
    let recorded = |depth: u64, width: u64| -> f64 {
        let all = config["accuracies"].as_array().unwrap().iter();
        let mut at = all.filter(|a| a["depth"] == depth && a["width"] == width);
        at.next().unwrap()["top1"].as_f64().unwrap()
    };
    let made = |flags: &str, out: &str| place.json(&format!("expand t {flags} --out {out}"));
    let at = made("--depth 3 --width 32", "a");
    assert!(at["top1"].is_null());
    assert_eq!(at["expected_top1"], recorded(3, 32));
    assert!(
        at["expected_from"]
            .as_str()
            .unwrap()
            .starts_with("measured")
    );
    let between = made("--depth 2 --width 32 --steps 0", "b");
    let found = between["expected_top1"].as_f64().unwrap();
    assert!((found - recorded(2, 32)).abs() < 1e-12);
    // Outside the recorded range, of another kind, or measured: no expected accuracy.
    for (flags, out) in [
        ("--depth 9 --width 32", "c"),
        ("--depth 3 --width 32 --scalers random", "d"),
        ("--depth 3 --width 32 --patch 4", "e"),
        (
            "--depth 3 --width 32 --data shapes --test-limit 8 --steps 0",
            "f",
        ),
    ] {
        assert!(made(flags, out).get("expected_top1").is_none(), "{flags}");
    }
}

#[test]
fn sizes_within_limits_have_the_given_shape() {
    let place = Place::new();
    // MLPs of another ratio were never measured with these templates, a depth above 24 as that of 24.
    let unknown = "expand --max-params 300k --mlp-ratio 2";
    let plan = place.stdout(&format!("{unknown} --dry-run"));
    assert!(
        plan.contains("in the condensed shape") && !plan.contains(" %"),
        "{plan}"
    );
    let made = place.json(&format!("{unknown} --out m"));
    let best = &made["sizes"][0];
    assert_eq!((&best["depth"], &best["width"]), (&4.into(), &64.into()));
    assert!(best["expected_top1"].is_null(), "{best}");
    let deep = place.stdout("expand --max-macs 10G --depth 60 --dry-run");
    assert_eq!(deep.matches("56.66 %").count(), 2, "{deep}");
    // Only width 96 is a multiple of 3.
    let heads = place.stdout("expand --max-params 300k --heads 3 --dry-run");
    assert!(heads.contains("2 layers, width 96, 3 heads"), "{heads}");
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let place = Place::with_templates();
    for (flags, needle) in [
        ("--max-params 10", "smallest"),
        ("--max-params many", "many"),
        ("--max-latency-ms 0", "max_latency_ms"),
        ("--max-latency-ms 0.0000001", "smallest"),
        ("--max-params 1M --depth 2 --width 16", "drop one"),
        ("--max-params 1M --width 17", "17"),
        (
            "--max-params 1M --heads 5",
            "heads 5 divides no width from 16 to 32",
        ),
    ] {
        place.refused(&format!("expand t {flags} --steps 0 --out o"), &[needle]);
    }
}
