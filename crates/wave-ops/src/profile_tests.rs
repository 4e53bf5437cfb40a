use super::*;
use std::thread::sleep;

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn times_add_up_and_ancestors_keep_theirs() {
    assert_eq!(end(), None, "nothing began");
    drop(doing(Work::Tests)); // not measured
    begin();
    sleep(SHORT);
    {
        let _optimiser = doing(Work::Optimiser);
        sleep(SHORT);
        let _inner = doing(Work::Composition);
        sleep(2 * SHORT);
    }
    {
        let _ancestor = doing(Work::Ancestor);
        let _blocks = doing(Work::Blocks);
        let _part = part(Part::Products);
        sleep(SHORT);
    }
    let profile = end().unwrap();
    let sum: Duration = profile.parts.iter().map(|(_, time)| *time).sum();
    assert_eq!(sum, profile.total);
    let of = |name| profile.parts.iter().find(|(n, _)| *n == name).unwrap().1;
    assert!(of("optimiser") >= SHORT);
    assert!(of("composition") >= 2 * SHORT);
    assert!(of("ancestor") >= SHORT);
    assert_eq!(of("products"), Duration::ZERO);
    assert!(of("other operators") >= SHORT);
    assert_eq!(end(), None);
}
