//! Properties of all methods.

use super::*;
use crate::Choices;
use crate::testing::{assert_same, changed, check_refused, donor, shape, try_start, values};
use wave_models::vit::{VitShape, check_weights};

fn choices() -> Choices {
    changed(Choices::default(), |c| {
        c.similarity = vec![0.4, 0.3, 0.2, 0.1]
    })
}

#[test]
fn every_method_fills_every_weight_the_same_way_twice() {
    for class_token in [false, true] {
        let target = changed(shape(4, 16), |s| s.class_token = class_token);
        for method in METHODS {
            let donors: Vec<_> = method
                .donor
                .then(|| donor(target.clone(), 3))
                .into_iter()
                .collect();
            let start = || try_start(method.name, &target, &donors, &choices()).unwrap();
            let (a, b) = (start().weights, start().weights);
            check_weights(&a, &target.parameters()).unwrap();
            for (name, tensor) in &a {
                assert_same(&format!("{} {name}", method.name), tensor, &b[name]);
                assert!(values(tensor).iter().all(|v| v.is_finite()), "{name}");
            }
        }
    }
}

#[test]
fn an_unknown_name_is_refused_with_all_names() {
    for needle in ["`magic`", "he, timm", "nested"] {
        check_refused(find("magic"), needle);
    }
}

#[test]
fn a_missing_or_unused_donor_is_refused() {
    let target = shape(4, 16);
    for method in METHODS {
        let donors = vec![donor(target.clone(), 0); usize::from(!method.donor)];
        let error = try_start(method.name, &target, &donors, &choices()).unwrap_err();
        let refused = matches!(error, wave_models::NetworkError::Refused(_));
        assert!(refused, "{error}");
        assert!(error.to_string().contains(method.name), "{error}");
    }
}

#[test]
fn impossible_targets_are_refused() {
    let distilled = VitShape {
        class_token: true,
        distilled: true,
        ..shape(2, 16)
    };
    for (target, needle) in [(shape(0, 16), "depth is 0"), (distilled, "distill")] {
        check_refused(try_start("t-fixup", &target, &[], &choices()), needle);
    }
}
