use super::*;
use crate::testing::check_refused;
use proptest::prelude::*;

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
