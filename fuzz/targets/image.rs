//! Image files, whole and in random crops.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Larger ones take long, and show nothing else.
const MAX_PIXELS: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Ok(image) = wave_data::decode(data, "x") else {
        wave_fuzz::crop(data);
        return;
    };
    let area = image.width * image.height;
    assert_eq!(image.pixels.len(), area * image.channels);
    assert!(matches!(image.channels, 1 | 3));
    if area <= MAX_PIXELS {
        wave_fuzz::crop(data);
    }
});
