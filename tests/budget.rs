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

    for (limit, most) in [("30k", 30_000), ("12000", 12_000), ("45.5k", 45_500)] {
        place.json(&format!("expand t --max-params {limit} --out m{limit}"));
        let weights = place.tensors(&format!("m{limit}/model.safetensors"));
        let counted: usize = weights.values().map(|t| t.elem_count()).sum();
        assert!(counted <= most, "{counted} values, at most {most}");
    }

    let narrow = place.json("expand t --width 16 --max-flops 1G --steps 0 --out narrow");
    assert_eq!(narrow["sizes"][0]["width"], 16);
    let fast = place.json("expand t --max-latency-ms 1000 --max-params 30k --steps 0 --out fast");
    let latency = fast["sizes"][0]["latency_ms"].as_f64().unwrap();
    assert!(latency > 0.0 && latency <= 1000.0);
}

#[test]
fn sizes_that_are_equal_within_noise_are_chosen_by_their_work() {
    let place = Place::with_templates();
    // All accuracies equal, except for the last, which differs by less than a tenth of a point.
    place.configure("t", |config| {
        let accuracies = config["accuracies"].as_array_mut().unwrap();
        for accuracy in accuracies.iter_mut() {
            accuracy["top1"] = 0.8.into();
        }
        accuracies.last_mut().unwrap()["top1"] = 0.8005.into();
    });
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
        let plan = place.stdout(&format!("expand t {limit} --dry-run --out o"));
        let said = plan.contains("equal within noise (0.1 points)");
        assert!(said && !place.path("o").exists(), "{limit}: {plan}");
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
    let last = config["accuracies"].as_array().unwrap().last().unwrap();
    let made = |flags: &str, out: &str| place.json(&format!("expand t {flags} --out {out}"));
    let size = format!("--depth {} --width {}", last["depth"], last["width"]);
    let at = made(&size, "a");
    assert!(at["top1"].is_null());
    assert_eq!(at["expected_top1"], last["top1"]);
    let from = at["expected_from"].as_str().unwrap();
    assert!(from.starts_with("measured"), "{from}");
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
    // MLPs of another ratio were never measured with these templates, nor depths above 24.
    let unknown = "expand --max-params 300k --mlp-ratio 2";
    for choice in [unknown, "expand --max-macs 10G --depth 60"] {
        let plan = place.stdout(&format!("{choice} --dry-run"));
        assert!(
            plan.contains("in the condensed shape") && !plan.contains(" %"),
            "{plan}"
        );
    }
    let made = place.json(&format!("{unknown} --out m"));
    let best = &made["sizes"][0];
    assert_eq!((&best["depth"], &best["width"]), (&4.into(), &64.into()));
    assert!(best["expected_top1"].is_null(), "{best}");
    // Only width 96 is a multiple of 3.
    let heads = place.stdout("expand --max-params 300k --heads 3 --dry-run");
    assert!(heads.contains("2 layers, width 96, 3 heads"), "{heads}");
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let place = Place::with_templates();
    place.refuses(
        "FLAGS --steps 0 --out o",
        "
        expand t --max-params 10 => smallest
        expand t --max-params many => many
        expand t --max-latency-ms 0 => max_latency_ms
        expand t --max-latency-ms 0.0000001 => and takes
        expand t --max-params 1M --depth 2 --width 16 => drop one
        expand t --max-params 1M --width 17 => 17
        expand t --max-params 1M --heads 5 => heads 5 divides no width from 16 to 32
        ",
    );
}

/// Widths that are no multiples of the head width are recorded if heads of other widths were sampled.
#[test]
fn a_size_within_limits_has_a_width_of_whole_heads() {
    let place = Place::with_templates();
    place.configure("t", |config| {
        for accuracy in config["accuracies"].as_array_mut().unwrap() {
            let width = accuracy["width"].as_u64().unwrap();
            accuracy["width"] = width.max(24).into();
        }
    });
    let made = place.json("expand t --max-params 1M --out m");
    assert_eq!(made["sizes"][0]["width"], 32);
    let made = place.json("expand t --max-params 1M --heads 3 --out n");
    assert_eq!(made["sizes"][0]["width"], 24);
    place.configure("t", |config| {
        let accuracies = config["accuracies"].as_array_mut().unwrap();
        accuracies.retain(|accuracy| accuracy["width"] == 24);
    });
    let refused = [
        "the head width 16 divides no width from 24 to 24",
        "--heads",
    ];
    place.refused("expand t --max-params 1M --out o", &refused);
}
