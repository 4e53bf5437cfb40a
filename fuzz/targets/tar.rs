//! Tar shards: the index, the labels and the images.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: wave_fuzz::without_cache(), |data: &[u8]| {
    wave_fuzz::look_at_images(&wave_fuzz::file("x.tar", data));
});
