//! Flags of the linker where an extension leaves Python's functions to the interpreter.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
