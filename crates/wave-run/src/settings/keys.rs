//! One declaration of a key gives its flag, its recipe key, its help, its default and its range.

use std::ops::RangeInclusive;

/// A key with its minimum and maximum.
pub type Range = (&'static str, RangeInclusive<f64>);

/// Declares a group of keys, each as `key<VALUE>: type = default, range;` after its help. VALUE is the placeholder in the
/// help of its flag, or `VALUE ','` if the flag takes several values, separated by commas; a key without it has no flag.
/// Default and range are optional. `table` is a group without flags that has its own table in a recipe; groups whose
/// keys are flattened into this group follow `with`.
///
/// `Group` holds the given values: flags and recipe tables are parsed into it. `GroupValues` replaces missing values by
/// their defaults; a key without a default is an `Option` there too, since its absence has a meaning.
macro_rules! keys {
    (
        $(#[$of_group:meta])*
        $group:ident => $values:ident {
            $($(#[$of_key:meta])* $key:ident$(<$value:ident $($comma:literal)?>)?:
                $type:ty $(= $default:expr)? $(, $range:expr)?;)*
        } $(table {
            $(#[$of_table:meta])* $table:ident: $rows:ty
        })? $(with {
            $($part:ident: $given:ty => $filled:ty,)*
        })?
    ) => {
        #[derive(clap::Args, serde::Serialize, serde::Deserialize, Clone, Debug, Default, PartialEq)]
        #[group(skip)] // a subcommand already has a group of its name
        $(#[$of_group])*
        pub struct $group {
            $($(#[$of_key])* $(#[arg(
                    long, allow_negative_numbers = true, value_name = stringify!($value) $(, value_delimiter = $comma)?
                )])?
                pub $key: Option<$type>,)*
            $(#[arg(skip)] #[serde(default)] $(#[$of_table])* pub $table: $rows,)?
            $($(#[command(flatten)] #[serde(flatten)] pub $part: $given,)*)?
        }

        #[doc = concat!("[`", stringify!($group), "`] with its defaults.")]
        #[derive(Clone, Debug)]
        pub struct $values {
            $(pub $key: keys!(@type $type $(= $default)?),)*
            $(pub $table: $rows,)?
            $($(pub $part: $filled,)*)?
        }

        impl From<$group> for $values {
            fn from(given: $group) -> $values {
                $values {
                    $($key: keys!(@value (given.$key) $($default)?),)*
                    $($table: given.$table,)?
                    $($($part: given.$part.into(),)*)?
                }
            }
        }

        impl $group {
            /// Ranges of the keys of this group and of the groups within it.
            pub(super) fn ranges() -> Vec<$crate::settings::keys::Range> {
                let own = vec![$($((stringify!($key), $range),)?)*];
                [own, $(<$rows>::ranges(),)? $($(<$given>::ranges(),)*)?].concat()
            }

            /// Defaults of the keys of this group and of the groups within it.
            #[cfg(test)]
            pub(super) fn defaults() -> Vec<(&'static str, String)> {
                let own = vec![$($({
                    let default: $type = $default;
                    (stringify!($key), format!("{default:?}"))
                },)?)*];
                [own, $(<$rows>::defaults(),)? $($(<$given>::defaults(),)*)?].concat()
            }
        }
    };
    (@type $type:ty = $default:expr) => { $type };
    (@type $type:ty) => { Option<$type> };
    (@value ($given:expr) $default:expr) => { $given.unwrap_or($default) };
    (@value ($given:expr)) => { $given };
}
