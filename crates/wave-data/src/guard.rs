//! A wrapper for parsers that panic on unexpected input.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// True if a panic on this thread comes from a guarded parser and is not printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Result of `work`, or the message of its panic, which is not printed. Values that it changes must not be
/// used after an error.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                others(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("it is damaged").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| 3), Ok(3));
        let none: Vec<u32> = Vec::new();
        assert_eq!(
            guarded(|| none.first().copied().expect("a table")),
            Err("a table".to_owned())
        );
        assert!(!QUIET.get());
    }
}
