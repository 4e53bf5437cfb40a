use super::*;

const ALL: Format = Format {
    width: 5,
    output: AncestorOutput::Scores,
    kept: None,
};
const TWO: Format = Format {
    kept: Some(2),
    ..ALL
};

/// Distinct logits for each image.
fn logits(images: &[u32], classes: usize) -> Vec<f32> {
    let z = |i: u32, c: usize| ((i as usize * 7 + c * 13) % 11) as f32 * 1.7 - 4.0;
    images
        .iter()
        .flat_map(|i| (0..classes).map(move |c| z(*i, c)))
        .collect()
}

fn softmax(row: &[f32]) -> Vec<f64> {
    let z = row.iter().map(|z| f64::from(*z));
    let total = log_sum_exp(z.clone());
    z.map(|z| (z - total).exp()).collect()
}

fn looked_up(rows: &[Rows], format: Format, images: &[u32]) -> Vec<Vec<f32>> {
    let view = View::new(rows, format, 100).unwrap();
    view.outputs(images).unwrap().to_vec2().unwrap()
}

#[test]
fn all_classes_come_back_within_the_rounding_of_f16() {
    let images = [3, 4, 60];
    let z = logits(&images, 5);
    let rows = Rows::new(&images, &z, ALL).unwrap();
    for (k, row) in looked_up(&[rows], ALL, &[60, 3, 4, 3]).iter().enumerate() {
        let own = [2, 0, 1, 0][k] * 5;
        for (p, q) in softmax(row).iter().zip(softmax(&z[own..own + 5])) {
            // f16 has 11 bits, and a logarithm here is above -20.
            assert!((p.ln() - q.ln()).abs() < 20.0 / 2048.0, "{p} {q}");
        }
    }
}

#[test]
fn the_largest_are_kept_and_the_others_share_the_rest() {
    let images = [1, 2];
    let z = logits(&images, 5);
    let rows = Rows::new(&images, &z, TWO).unwrap();
    let found = looked_up(std::slice::from_ref(&rows), TWO, &images);
    let mut rest = 0.0;
    for (row, z) in found.iter().zip(z.chunks(5)) {
        let (p, q) = (softmax(row), softmax(z));
        let mut order = [0, 1, 2, 3, 4];
        order.sort_by(|a, b| q[*b].total_cmp(&q[*a]));
        for class in &order[..2] {
            assert!((p[*class] / q[*class] - 1.0).abs() < 1e-3);
        }
        let left: f64 = order[2..].iter().map(|c| q[*c]).sum();
        rest += left;
        for class in &order[2..] {
            assert!((p[*class] * 3.0 / left - 1.0).abs() < 1e-2);
        }
    }
    let view = View::new(&[rows], TWO, 100).unwrap();
    assert!((view.rest().unwrap() / rest - 1.0).abs() < 1e-2);
}

#[test]
fn what_takes_no_less_room_is_kept_whole() {
    let format = |top, classes| Format::new(AncestorOutput::Scores, top, classes);
    for (top, classes, bytes) in [
        (Top::All, 1000, 2004),
        (Top::Most(16), 1000, 70),
        (Top::Most(16), 256, 54),
        (Top::Most(16), 257, 70),
        (Top::Most(16), 65_536, 70),
        (Top::Most(16), 65_537, 86),
    ] {
        assert_eq!(format(top, classes).bytes_per_image(), bytes, "{classes}");
    }
    assert_eq!(format(Top::Most(16), 10).kept, None);
    assert_eq!(format(Top::Most(3), 10).kept, Some(3));
}

#[test]
fn merged_rows_are_those_computed_together() {
    for format in [ALL, TWO] {
        let rows = |images: &[u32]| Rows::new(images, &logits(images, 5), format).unwrap();
        let (some, more) = (rows(&[2, 8, 9]), rows(&[1, 3, 50]));
        assert_eq!(some.missing(&[1, 2, 3, 50]), [1, 3, 50]);
        let all = [1, 2, 3, 8, 9, 50];
        let (merged, whole) = (some.merge(&more).unwrap(), rows(&all));
        assert_eq!(merged.images, whole.images);
        let parts = looked_up(&[merged], format, &all);
        assert_eq!(parts, looked_up(&[whole], format, &all));
        let none = Rows::none(format).unwrap();
        let grown = none.merge(&some).unwrap();
        assert_eq!(grown.missing(&all), [1, 3, 50]);
    }
}

#[test]
fn many_classes_and_extreme_logits_survive_a_shard() {
    let format = Format {
        width: 3000,
        kept: Some(4),
        ..ALL
    };
    let mut z = vec![-1e30_f32; 3000];
    (z[2999], z[256], z[7]) = (1e4, 1e4, 9.9e3);
    let rows = Rows::new(&[5], &z, format).unwrap();
    let table = rows.table.clone();
    let rows = Rows::from_table(&table, format, 0..10).unwrap();
    let p = softmax(&looked_up(&[rows], format, &[5])[0]);
    assert!((p[2999] - 0.5).abs() < 1e-3 && (p[256] - 0.5).abs() < 1e-3);
    assert!(p.iter().all(|p| p.is_finite()) && p[7] < 1e-20);
}

#[test]
fn what_is_no_shard_is_refused() {
    let rows = Rows::new(&[4, 5], &logits(&[4, 5], 5), TWO).unwrap();
    let table = rows.table.clone();
    let refused = |table: &Weights, format, range: Range<u32>, needle: &str| {
        let problem = Rows::from_table(table, format, range).err().unwrap();
        assert!(problem.contains(needle), "{problem}");
    };
    assert!(Rows::from_table(&table, TWO, 0..6).is_ok());
    refused(&table, TWO, 0..5, "ascending");
    refused(&table, ALL, 0..6, "log_p");
    for name in ["images", "log_p", "classes", "rest"] {
        let mut less = table.clone();
        less.remove(name);
        refused(&less, TWO, 0..6, "");
    }
    // Images and classes that do not exist are refused.
    let view = View::new(&[rows], TWO, 6).unwrap();
    assert!(view.outputs(&[3]).is_err() && view.outputs(&[6]).is_err());
    let mut wrong = table.clone();
    let classes = Tensor::full(9u8, (2, 2, 1), &Device::Cpu).unwrap();
    wrong.insert("classes".into(), classes);
    let rows = Rows::from_table(&wrong, TWO, 0..6).unwrap();
    assert!(View::new(&[rows], TWO, 6).unwrap().outputs(&[4]).is_err());
}

#[test]
fn features_come_back_as_they_are() {
    let format = Format::new(AncestorOutput::Features, Top::All, 3);
    assert_eq!((format.bytes_per_image(), format.kept), (10, None));
    let features = [1.5f32, -200.25, 0.0, 1e6, -1e6, 3e-8];
    let rows = Rows::new(&[4, 9], &features, format).unwrap();
    let found = looked_up(&[rows], format, &[9, 4]);
    assert_eq!(found[1], [1.5, -200.25, 0.0]);
    assert_eq!(found[0][..2], [65_504.0, -65_504.0]); // the largest numbers of f16
}
