//! Single operators; see `trunk.rs` for the transformer blocks.

fn main() {
    divan::main();
}
