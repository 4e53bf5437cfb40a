use super::*;

fn parsed(text: &str) -> Result<Vec<u32>, String> {
    let names = ["v_1.JPEG", "v_2.JPEG"].map(str::to_owned);
    let classes = ["n01", "n02", "n10"].map(str::to_owned);
    parse(text, &names, &classes)
}

#[test]
fn several_notations_are_read() {
    for text in [
        "v_2.JPEG n10\nv_1.JPEG n02\n",
        "ImageId,PredictionString\nv_1,n02 3 4 5 6\nv_2,n10 1 1 2 2 n01 3 3 4 4",
        "val/v_1.JPEG 1\nval/v_2.JPEG\t2\n\n",
    ] {
        assert_eq!(parsed(text).unwrap(), [1, 2]);
    }
}

#[test]
fn what_is_wrong_is_named() {
    assert!(
        parsed("v_1.JPEG 1")
            .unwrap_err()
            .contains("does not name v_2.JPEG")
    );
    let problem = parsed("v_1 1\nv_2 dog").unwrap_err();
    assert!(
        problem.contains("line 2: `dog`") && problem.contains("0 to 2"),
        "{problem}"
    );
    assert!(
        parsed("v_1 1\nv_2 3")
            .unwrap_err()
            .contains("`3` is no class")
    );
}
