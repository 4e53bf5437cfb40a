use crate::testing::{Kronecker, learngene};

#[test]
fn a_size_has_the_auxiliarys_heads_or_the_given_ones() {
    let gene = learngene(Kronecker::Tile); // heads of width 16
    for (width, heads, expected) in [(64, None, 4), (48, None, 3), (48, Some(2), 2)] {
        let shape = gene.shape(3, width, heads).unwrap();
        assert_eq!(
            (shape.depth, shape.width, shape.heads),
            (3, width, expected)
        );
    }
    let refused = |width, heads| gene.shape(3, width, heads).unwrap_err().to_string();
    assert!(refused(40, None).contains("use 32 or 48"));
    // A prime: no number of heads is searched for.
    assert!(refused((1 << 61) - 1, Some(1)).contains("at most"));
    assert!(refused(usize::MAX, None).contains("not a multiple"));
}
