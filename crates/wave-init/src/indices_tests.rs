use super::*;
use crate::testing::check_refused;
use proptest::prelude::*;

#[test]
fn indices_are_numpys() {
    // >>> [i * (t // s) for i in range(s)] if t % s == 0 else np.linspace(0, t - 1, s).round()
    for (of, count, expected) in [
        (12, 4, vec![0, 3, 6, 9]),
        (10, 4, vec![0, 3, 6, 9]),
        (4, 3, vec![0, 2, 3]), // 1.5 rounds to 2
        (6, 3, vec![0, 2, 4]),
        (8, 3, vec![0, 4, 7]), // 3.5 rounds to 4
        (6, 4, vec![0, 2, 3, 5]),
        (7, 5, vec![0, 2, 3, 4, 6]), // 4.5 rounds to 4
        (12, 8, vec![0, 2, 3, 5, 6, 8, 9, 11]),
        (5, 5, vec![0, 1, 2, 3, 4]),
        (9, 1, vec![0]),
    ] {
        assert_eq!(uniform(of, count), expected, "{count} of {of}");
    }
}

#[test]
fn indices_of_all_sizes_are_numpys() {
    // >>> def index(t, s):
    // ...     if t % s == 0: return np.arange(s) * (t // s)
    // ...     return np.linspace(0, t - 1, s).round().astype(int)
    // >>> sum(int(((np.arange(s) + 1) * index(t, s)).sum()) for t in range(1, 201) for s in range(1, t + 1))
    let weighted = |of, count| -> usize {
        let indices = uniform(of, count).into_iter().enumerate();
        indices.map(|(i, index)| (i + 1) * index).sum()
    };
    let all: usize = (1..=200)
        .flat_map(|of| (1..=of).map(move |count| (of, count)))
        .map(|(of, count)| weighted(of, count))
        .sum();
    assert_eq!(all, 7_289_724_588);
    // >>> index(768, 576)[:8], index(1152, 768)[-4:]
    assert_eq!(uniform(768, 576)[..8], [0, 1, 3, 4, 5, 7, 8, 9]);
    assert_eq!(uniform(1152, 768)[764..], [1146, 1148, 1149, 1151]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn indices_ascend_within_bounds(of in 1usize..3000, part in 0.0f64..1.0) {
        let count = ((of as f64 * part) as usize).max(1);
        let indices = uniform(of, count);
        prop_assert_eq!(indices.len(), count);
        prop_assert!(indices.windows(2).all(|w| w[0] < w[1]));
        prop_assert!(indices[count - 1] < of && indices[0] == 0);
    }
}

#[test]
fn names_are_read_back() {
    for layers in Layers::ALL {
        assert_eq!(layers.name().parse::<Layers>().unwrap(), layers);
    }
    check_refused("last".parse::<Layers>(), "first, uniform");
}
