use super::*;

const RED: [u8; 3] = [178, 24, 43];
const BLUE: [u8; 3] = [33, 102, 172];
const WHITE: [u8; 3] = [255; 3];

fn decode(png: &[u8]) -> RgbImage {
    image::load_from_memory(png).unwrap().to_rgb8()
}

#[track_caller]
fn check(rows: usize, cols: usize, values: &[f32], colours: &[[u8; 3]]) {
    let picture = decode(&heat_map(rows, cols, values).unwrap());
    assert_eq!(picture.dimensions(), (cols as u32, rows as u32));
    let found: Vec<[u8; 3]> = picture.pixels().map(|pixel| pixel.0).collect();
    assert_eq!(found, colours);
}

#[test]
fn a_heat_map_has_a_pixel_for_each_value() {
    const GREY: [u8; 3] = NAN_COLOUR.0;
    let values = [1.0, 0.0, -1.0, 0.0, 1.0, f32::NAN];
    check(2, 3, &values, &[RED, WHITE, BLUE, WHITE, RED, GREY]);
    // Values without a scale.
    check(1, 1, &[0.0], &[WHITE]);
    check(1, 2, &[f32::NAN; 2], &[GREY; 2]);
    check(1, 2, &[f32::INFINITY, f32::NEG_INFINITY], &[RED, BLUE]);
    heat_map(1, 2, &[f32::MAX, f32::from_bits(1)]).unwrap();
}

#[test]
fn one_outlier_does_not_whiten_the_rest() {
    let mut values = vec![1.0; 400];
    values[0] = 1e6;
    assert_eq!(scale(&values), 1.0);
    // With mostly zeros, the percentile is zero.
    let mut values = vec![0.0; 400];
    values[0] = -3.0;
    assert_eq!(scale(&values), 3.0);
}

#[test]
fn a_wrong_number_of_values_is_an_error() {
    let error = heat_map(2, 2, &[1.0; 3]).unwrap_err().to_string();
    assert!(error.contains("2 x 2 needs 4 values"), "{error}");
    assert!(error.contains("found 3"), "{error}");
    assert!(heat_map(0, 3, &[]).is_err());
    assert!(heat_map(usize::MAX, 2, &[]).is_err());
    assert!(heat_map_grid(&[], 3).is_err());
    let panel = ("templates.qkv".to_owned(), 1, 1, vec![]);
    let error = heat_map_grid(&[panel], 1).unwrap_err();
    assert!(format!("{error:#}").contains("templates.qkv"));
}

#[test]
fn a_grid_runs_left_to_right_then_down() {
    let panel = |rows, cols, value: f32| (String::new(), rows, cols, vec![value; rows * cols]);
    let panels = [panel(1, 1, 1.0), panel(2, 1, -1.0), panel(1, 2, 0.0)];
    let picture = decode(&heat_map_grid(&panels, 2).unwrap());
    // Panels of 192 x 192, 96 x 192 and 192 x 96 (width x height).
    let side = 4 + 192 + 4 + 96 + 4;
    assert_eq!(picture.dimensions(), (side, side));
    for (x, y, colour) in [
        (3, 3, SEPARATOR_COLOUR.0),
        (4, 4, RED),
        (195, 195, RED),
        (196, 4, SEPARATOR_COLOUR.0),
        (200, 4, BLUE),
        (295, 195, BLUE),
        (4, 200, WHITE),
        (195, 295, WHITE),
        (200, 200, SEPARATOR_COLOUR.0), // the cell without a panel
    ] {
        assert_eq!(picture.get_pixel(x, y).0, colour, "pixel ({x}, {y})");
    }
    let one = decode(&heat_map_grid(&panels[..1], 100).unwrap());
    assert_eq!(one.dimensions(), (200, 200));
}
