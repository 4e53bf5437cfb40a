//! The numbers and rules of preprocessing, checked in one place for models and templates alike.

/// Rounding of half a pixel of a crop's offset in torchvision, and so in timm.
pub const HALF_TO_EVEN: &str = "half_to_even";
/// Rounding of it in transformers.
pub const FLOOR: &str = "floor";

/// Refuses numbers that no image can be prepared with.
pub(crate) fn check_numbers(mean: &[f64], std: &[f64], crop_pct: f64) -> Result<(), String> {
    if mean.len() != std.len() {
        let (m, s) = (mean.len(), std.len());
        return Err(format!("`mean` has {m} values and `std` has {s}"));
    }
    if !mean.iter().all(|value| (0.0..=1.0).contains(value)) {
        return Err(format!(
            "`mean` is {mean:?}, expected numbers from 0 to 1, where black is 0 and white 1"
        ));
    }
    if !std.iter().all(|value| (1e-4..=1.0).contains(value)) {
        return Err(format!(
            "`std` is {std:?}, expected positive numbers, 0.0001 to 1"
        ));
    }
    if !(0.01..=1.0).contains(&crop_pct) {
        return Err(format!(
            "`crop_pct` is {crop_pct}, expected a number from 0.01 to 1"
        ));
    }
    Ok(())
}

/// Refuses a wrong number of class names; an empty list means that they are absent.
pub(crate) fn check_label_names(names: &[String], classes: usize) -> Result<(), String> {
    match names.len() {
        n if n == 0 || n == classes => Ok(()),
        n => Err(format!("`label_names` has {n} names for {classes} classes")),
    }
}

/// Refuses the value of an optional key that is not one of two words.
pub(crate) fn check_word(key: &str, found: Option<&str>, known: [&str; 2]) -> Result<(), String> {
    match found {
        Some(found) if !known.contains(&found) => {
            let [one, other] = known;
            Err(format!(
                "`{key}` is `{found}`, expected `{one}` or `{other}`"
            ))
        }
        _ => Ok(()),
    }
}
