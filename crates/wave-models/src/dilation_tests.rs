use super::*;
use serde_json::json;

fn layers(text: &str, depth: usize) -> Vec<usize> {
    let dilations = Dilations::parse(text, depth).unwrap();
    (0..depth).map(|layer| dilations.at(layer)).collect()
}

#[test]
fn schedules_are_the_papers() {
    assert_eq!(layers("C", 8), [3, 3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(layers("E", 8), [1, 1, 1, 1, 2, 2, 3, 3]);
    assert_eq!(layers("F", 8), [1, 1, 2, 2, 2, 2, 2, 2]);
    assert_eq!(layers("G", 8), [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(layers("H", 8), [1, 1, 1, 1, 1, 1, 2, 2]);
    assert_eq!(layers("D", 12), [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3]);
    assert_eq!(layers("B", 3), [2, 2, 2]);
    assert_eq!(layers("2", 3), [2, 2, 2]);
    assert_eq!(layers("123", 3), [1, 2, 3]);
    assert_eq!(Dilations::parse("A", 5).unwrap(), Dilations::default());
    for text in ["", "I", "12", "1,2,3", "-1"] {
        let error = Dilations::parse(text, 3).unwrap_err().to_string();
        assert!(error.contains("for 3 layers"), "{error}");
    }
}

#[test]
fn configurations_come_back() {
    let dilations = Dilations::parse("122", 3).unwrap();
    let written = dilations.to_json().unwrap();
    assert_eq!(written, json!([1, 2, 2]));
    assert_eq!(Dilations::from_json(&written, 3).unwrap(), dilations);
    let twos = Dilations::parse("2", 3).unwrap();
    assert_eq!(Dilations::from_json(&json!(2), 3).unwrap(), twos);
    let none = Dilations::from_json(&json!([1, 1]), 2).unwrap();
    assert_eq!(none.to_json(), None);
    for value in [json!("2"), json!([1, -2]), json!(1.5), json!(null)] {
        assert!(Dilations::from_json(&value, 2).is_err(), "{value}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let check = |text: &str, kernel| Dilations::parse(text, 3).unwrap().validate(3, kernel, 7);
    assert!(check("171", 3).is_ok() && check("1", 4).is_ok());
    for (text, kernel, part) in [
        ("181", 3, "dilation is 8; it must be at most 7"),
        ("101", 3, "dilation is 0"),
        ("2", 4, "odd"),
    ] {
        let error = check(text, kernel).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let other = Dilations::parse("12", 2).unwrap().validate(3, 3, 7);
    assert!(other.unwrap_err().to_string().contains("3 layers"));
}
