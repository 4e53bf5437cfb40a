//! Safetensors files, and what network they are taken for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wave::context::Context;
use wave::model::Model;

fuzz_target!(|data: &[u8]| {
    let path = wave_fuzz::file("x.safetensors", data);
    if wave_hub::read_tensors(&path).is_ok() {
        let _ = Model::read(&path, &Context::default());
    }
});
