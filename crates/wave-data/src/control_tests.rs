use super::*;
use crate::open as open_spec;

fn image() -> RawImage {
    RawImage {
        width: 3,
        height: 2,
        channels: 1,
        pixels: vec![1, 2, 3, 4, 5, 6],
    }
}

#[test]
fn images_are_inverted_and_turned() {
    let inverted = Change::Inverted.apply(image());
    assert_eq!(inverted.pixels, [254, 253, 252, 251, 250, 249]);
    let turned = Change::Rotated.apply(image());
    assert_eq!((turned.width, turned.height), (2, 3));
    assert_eq!(turned.pixels, [3, 6, 2, 5, 1, 4]);
    let rgb = RawImage {
        width: 1,
        channels: 3,
        ..image()
    };
    assert_eq!(Change::Rotated.apply(rgb).pixels, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn all_images_are_shuffled_alike_and_lose_nothing() {
    let plain = open_spec("shapes").unwrap();
    let shuffled = open_spec("shuffled:shapes").unwrap();
    assert_eq!(shuffled.train.len(), plain.train.len());
    assert_eq!(shuffled.class_names, plain.class_names);
    assert_eq!(shuffled.train.native_size(), plain.train.native_size());
    let order = order("shuffled:shapes", &*plain.train).unwrap();
    for (source, other) in [
        (&plain.train, &shuffled.train),
        (&plain.test, &shuffled.test),
    ] {
        for i in [0, 7, 500] {
            let (before, after) = (source.image(i).unwrap(), other.image(i).unwrap());
            assert_ne!(before, after);
            assert_eq!(source.label(i), other.label(i));
            let c = before.channels;
            for (to, from) in order.iter().enumerate() {
                let from = *from as usize;
                assert_eq!(after.pixels[to * c..][..c], before.pixels[from * c..][..c]);
            }
        }
    }
}

#[test]
fn controls_are_nested_a_few_times_only() {
    let nested = |n: usize| open_spec(&("inverted:".repeat(n) + "shapes"));
    assert_eq!(nested(2).unwrap().name, "inverted inverted shapes");
    assert!(nested(MOST_NESTED).is_ok());
    assert!(open_spec("inverted:nothing-there").is_err());
    for n in [MOST_NESTED + 1, 3000] {
        let error = nested(n).err().unwrap();
        assert!(error.is_request() && error.to_string().len() < 200);
    }
}
