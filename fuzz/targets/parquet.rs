//! Parquet files: footers, labels and images.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        wave_fuzz::without_cache();
        wave_fuzz::let_panics_be_caught();
    },
    |data: &[u8]| wave_fuzz::look_at_images(&wave_fuzz::file("x.parquet", data))
);
