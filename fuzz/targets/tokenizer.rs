//! `tokenizer.json` files, and a text in their tokens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wave_data::Tokenizer;

fuzz_target!(init: wave_fuzz::let_panics_be_caught(), |data: &[u8]| {
    let path = wave_fuzz::file("tokenizer.json", data);
    if let Ok(tokenizer) = Tokenizer::read(&path) {
        let _ = tokenizer.encode("a photo of a café, 2 cats");
    }
});
