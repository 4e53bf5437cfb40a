//! Settings of an ancestor's outputs on disk.

use super::Top;

keys! {
    /// Keys of every command that distils an ancestor.
    Outputs => OutputsValues {
        /// Cache the ancestor's outputs in this directory: it runs once per image and view (see --views; without it
        /// each epoch is a view). Runs with other templates, sizes and seeds reuse them. Not with --mixup, --cutmix or
        /// --repeats
        #[arg(long, value_name = "DIR")]
        cache: String;
        /// Most probable classes cached per image, or all; other classes share the remaining probability [default: 16]
        #[arg(long, value_name = "K")]
        cache_top: Top = Top::Most(16);
    }
}
