//! Recipes: TOML files whose tables are the stages and whose keys are the stages' flags.

use crate::error::request;
use crate::hint::did_you_mean;
use crate::settings;
pub use crate::settings::to_table;
use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use wave_models::refuse;

/// A recipe as read, with the `--set` overrides applied.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The file's name without its extension, or `name` in it.
    pub name: String,
    /// Path of the file.
    pub path: Option<PathBuf>,
    /// The whole content.
    pub table: Table,
    /// Prefix of error messages.
    whose: String,
}

const TABLES: [&str; 7] = [
    "ancestor", "condense", "expand", "adapt", "init", "finetune", "bench",
];

/// Top-level keys: a name, and keys that every stage inherits.
pub const COMMON: [&str; 9] = [
    "name",
    "data",
    "train_limit",
    "test_limit",
    "hold_out",
    "batch",
    "seed",
    "mean",
    "std",
];

/// The name of a recipe, which also names the directory of its run.
fn checked_name(name: &Value) -> Result<String> {
    match name.as_str() {
        Some(text) if Path::new(text).file_name() == Some(text.as_ref()) => Ok(text.to_owned()),
        _ => refuse!(
            "name = {name}: expected the name of a directory below runs, without separators"
        ),
    }
}

impl Recipe {
    /// Reads a recipe and applies `--set table.key=value` overrides.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Recipe> {
        let text = wave_hub::read_text(path)
            .map_err(|e| request(format!("cannot read the recipe {e}; give a TOML file")))?;
        let whose = format!("recipe {}", path.display());
        let table = text.parse::<Table>();
        let table = table.map_err(|e| request(format!("{whose}: {e}")))?;
        let stem = path.file_stem().unwrap_or("recipe".as_ref());
        let stem = stem.to_string_lossy().into_owned();
        Ok(Recipe {
            path: Some(path.into()),
            ..Recipe::new(stem, table, whose, overrides)?
        })
    }

    /// A recipe without a file, such as one made by a program.
    pub fn of_table(table: Table) -> Result<Recipe> {
        Recipe::new("recipe".into(), table, "the recipe".into(), &[])
    }

    /// A recipe without a file, of overrides only.
    pub fn empty(name: &str, overrides: &[String]) -> Result<Recipe> {
        Recipe::new(name.into(), Table::new(), "--set".into(), overrides)
    }

    fn new(name: String, table: Table, whose: String, overrides: &[String]) -> Result<Recipe> {
        let mut recipe = Recipe {
            name,
            path: None,
            table,
            whose,
        };
        recipe.apply(overrides)?;
        if let Some(name) = recipe.table.get("name") {
            recipe.name = checked_name(name)?;
        }
        Ok(recipe)
    }

    /// Sets `data` at the top level, and removes it from the table of each stage.
    pub fn set_data(&mut self, data: String) {
        for (name, table) in &mut self.table {
            if let Value::Table(own) = table
                && name != "bench"
            {
                own.remove("data");
            }
        }
        self.table.insert("data".into(), Value::String(data));
    }

    /// True if `data` is given at the top level or in the table of a stage.
    pub fn has_data(&self) -> bool {
        let stages = self.table.iter().filter(|(name, _)| *name != "bench");
        let tables = stages.filter_map(|(_, value)| value.as_table());
        tables
            .chain([&self.table])
            .any(|table| table.contains_key("data"))
    }

    /// True if the recipe has a table of this name.
    pub fn has(&self, table: &str) -> bool {
        self.table.contains_key(table)
    }

    fn apply(&mut self, overrides: &[String]) -> Result<()> {
        let mut seen = BTreeMap::new();
        for text in overrides {
            let Some((key, value)) = text.split_once('=') else {
                refuse!("--set {text}: expected table.key=value");
            };
            let value = parse_value(value.trim());
            for (key, _) in leaves(key.trim(), &value) {
                let role = match key.rsplit_once('.') {
                    Some((table, last)) if DURATIONS.contains(&last) => format!("{table} duration"),
                    _ => key.clone(),
                };
                match seen.insert(role, key.clone()) {
                    None => {}
                    Some(other) if other == key => {
                        refuse!("--set {key} is given twice; give it once")
                    }
                    Some(other) => {
                        refuse!("--set {other} and --set {key} are two durations; give one of them")
                    }
                }
            }
            set(&mut self.table, key.trim(), value)?;
        }
        for (key, value) in &self.table {
            let names = match value {
                Value::Table(_) => &TABLES[..],
                _ => &COMMON[..],
            };
            let whose = &self.whose;
            if TABLES.contains(&key.as_str()) && !value.is_table() {
                refuse!(
                    "{whose}: {key} is of type {}, expected one table, [{key}]",
                    value.type_str()
                );
            }
            if !names.contains(&key.as_str()) {
                let hint = did_you_mean(key, names.iter().copied());
                let (tables, others) = (TABLES.join(", "), COMMON.join(", "));
                refuse!(
                    "{whose}: unknown key {key}{hint}; expected a table ({tables}) or a key outside \
                     the tables ({others})"
                );
            }
        }
        Ok(())
    }

    /// The keys of a stage's own table.
    pub fn table_of(&self, table: &str) -> Table {
        let own = self.table.get(table).and_then(Value::as_table);
        own.cloned().unwrap_or_default()
    }

    /// [`Recipe::table_of`] without aliases.
    fn own(&self, table: &str) -> Result<Table> {
        without_alias(self.table_of(table)).with_context(|| format!("{}, [{table}]", self.whose))
    }

    /// In a recipe of overrides only, refuses one for another stage than `table`, or for a key that `flags` give too.
    pub fn refuse_beside(&self, table: &str, flags: &Table) -> Result<()> {
        for (name, value) in &self.table {
            if value.is_table() && name != table {
                refuse!("--set {name}...: this command reads [{table}] alone; remove it");
            }
        }
        let mut given = self.table.clone();
        given.remove(table);
        merge(&mut given, &self.own(table)?);
        let Some(key) = common_key(&given, &with_durations(flags)) else {
            return Ok(());
        };
        let both = match flags.contains_key(&key) {
            true => key.as_str(),
            false => "a duration",
        };
        refuse!("--set and a flag both give {both}; give one of them")
    }

    /// Refuses a key of the stage, in one of the tables `over` this recipe, that the stage's `levels` decide.
    pub fn refuse_in_levels(&self, table: &str, over: [&Table; 2]) -> Result<()> {
        let own = self.table_of(table);
        let levels = own.get("levels").and_then(Value::as_array);
        for level in levels.into_iter().flatten().filter_map(Value::as_table) {
            let mut decided = with_durations(level);
            decided.extend(["minutes", "sizes"].map(|key| (key.to_owned(), true.into())));
            if let Some(key) = over.iter().find_map(|over| common_key(over, &decided)) {
                refuse!(
                    "{key} has no effect, since the levels of {} decide it; change them there",
                    self.whose
                );
            }
        }
        Ok(())
    }

    /// The settings of a stage: the common keys, then its table, then `over`, such as flags or a method's own settings.
    pub fn stage<T>(&self, table: &str, over: Option<&Table>) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let mut own = self.own(table)?;
        if let Some(over) = over {
            merge(&mut own, &without_alias(over.clone())?);
        }
        let mut merged = Table::new();
        // A stage that does not train ignores keys outside the tables that it lacks, but none of its own.
        let mut ignored = Vec::new();
        for key in COMMON.into_iter().filter(|key| *key != "name") {
            if let (Some(value), false) = (self.table.get(key), own.contains_key(key)) {
                merged.insert(key.into(), value.clone());
                ignored.push(key);
            }
        }
        merge(&mut merged, &own);
        let whose = format!("{}, [{table}]", self.whose);
        parse(&merged, table, &whose, &ignored)
    }
}

/// Gives the value of `max_flops` the key that it is an alias of.
fn without_alias(mut given: Table) -> Result<Table> {
    let Some(value) = given.remove("max_flops") else {
        return Ok(given);
    };
    match given.insert("max_macs".into(), value) {
        None => Ok(given),
        Some(_) => refuse!(
            "max_flops and max_macs are two names of one limit, but both are given; remove one"
        ),
    }
}

/// The settings of a stage from a table like its own. Refuses unknown keys, except `ignored` ones, and values of the
/// wrong type or out of their range. `whose` is the prefix of errors.
pub fn parse<T>(given: &Table, table: &str, whose: &str, ignored: &[&str]) -> Result<T>
where
    T: Serialize + DeserializeOwned + Default,
{
    let settings: T = given.clone().try_into().map_err(|e: toml::de::Error| {
        // Flattened tables lose the key of an error, so each key is tried by itself.
        let wrong = given.iter().find(|(key, value)| {
            let alone: Table = [((*key).clone(), (*value).clone())].into_iter().collect();
            alone.try_into::<T>().is_err()
        });
        let key = wrong.map_or(String::new(), |(key, _)| format!("{key}: "));
        request(format!("{whose}: {key}{}", e.message()))
    })?;
    let known = to_table(&settings)?;
    settings::check_table(&known)?;
    let mut checked = given.clone();
    checked.retain(|key, _| !ignored.contains(&key));
    match unknown_key(&checked, &known) {
        None => Ok(settings),
        Some(key) => {
            let meant = suggestion::<T>(&key);
            let help = match table {
                "ancestor" => "`wave help init` and `wave help finetune`".to_owned(),
                table => format!("`wave help {table}`"),
            };
            refuse!("{whose}: unknown key {key}{meant}; see {help}")
        }
    }
}

/// A suggestion for an unknown key, as the end of an error message.
fn suggestion<T: Serialize + Default>(key: &str) -> String {
    // JSON writes unset keys as null, which TOML leaves out.
    let known = serde_json::to_value(T::default()).unwrap_or_default();
    let (table, name) = match key.rsplit_once('.') {
        Some((table, name)) => (&known[table], name),
        None => (&known, key),
    };
    let names = table.as_object().into_iter().flat_map(|t| t.keys());
    did_you_mean(name, names.map(String::as_str))
}

/// Converts settings to a type that has only the settings that apply to `what`. Refuses any other.
pub fn narrow<T>(settings: &impl Serialize, what: &str) -> Result<T>
where
    T: Serialize + DeserializeOwned + Default,
{
    let given = to_table(settings)?;
    let own: T = given
        .clone()
        .try_into()
        .map_err(|e: toml::de::Error| request(format!("settings of {what}: {}", e.message())))?;
    match unknown_key(&given, &to_table(&own)?) {
        None => Ok(own),
        Some(key) => Err(means_nothing(&key, what)),
    }
}

/// The error for a setting that does not apply to `what`.
pub fn means_nothing(key: &str, what: &str) -> anyhow::Error {
    let flag = key.replace('_', "-");
    request(format!("--{flag} does not apply to {what}; remove it"))
}

const DURATIONS: [&str; 2] = ["epochs", "steps"];

/// The table, and if it has a duration of one kind, also one of the other.
fn with_durations(table: &Table) -> Table {
    let mut all = table.clone();
    if DURATIONS.iter().any(|key| table.contains_key(*key)) {
        all.extend(DURATIONS.map(|key| (key.to_owned(), true.into())));
    }
    all
}

/// Merges `over` into `base`, table by table. A duration replaces one of either kind.
pub fn merge(base: &mut Table, over: &Table) {
    if DURATIONS.iter().any(|key| over.contains_key(*key)) {
        for key in DURATIONS {
            base.remove(key);
        }
    }
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            _ => _ = base.insert(key.clone(), value.clone()),
        }
    }
}

/// The first key that both tables give, dotted.
fn common_key(one: &Table, other: &Table) -> Option<String> {
    first_key(one, other, true)
}

/// The first key of `given` that `known` lacks, dotted.
fn unknown_key(given: &Table, known: &Table) -> Option<String> {
    first_key(given, known, false)
}

/// The first key of `one` that `other` gives too (`common`) or lacks, dotted.
fn first_key(one: &Table, other: &Table, common: bool) -> Option<String> {
    let mut keys = one.iter();
    keys.find_map(|(key, value)| match (value, other.get(key)) {
        (Value::Table(one), Some(Value::Table(other))) => {
            first_key(one, other, common).map(|inner| format!("{key}.{inner}"))
        }
        (_, found) => (found.is_some() == common).then(|| key.clone()),
    })
}

/// A value with its key, or the values in a table with their dotted keys. An empty table counts as a value.
pub(crate) fn leaves<'a>(key: &str, value: &'a Value) -> Vec<(String, &'a Value)> {
    match value {
        Value::Table(table) if !table.is_empty() => {
            let inner = table.iter();
            let each = inner.flat_map(|(name, value)| leaves(&format!("{key}.{name}"), value));
            each.collect()
        }
        _ => vec![(key.to_owned(), value)],
    }
}

fn set(table: &mut Table, key: &str, value: Value) -> Result<()> {
    let Some((first, rest)) = key.split_once('.') else {
        if table.get(key).is_some_and(Value::is_table) && !value.is_table() {
            refuse!(
                "--set {key}={value}: {key} is a table; set one of its keys, as {key}.KEY=VALUE"
            );
        }
        merge(table, &Table::from_iter([(key.to_owned(), value)]));
        return Ok(());
    };
    let inner = table.entry(first).or_insert_with(|| Table::new().into());
    match inner {
        Value::Table(inner) => set(inner, rest, value),
        _ => refuse!("--set {key}: {first} is a value, not a table"),
    }
}

/// A TOML value, or the text itself if it is not one.
fn parse_value(text: &str) -> Value {
    let table = format!("v = {text}").parse::<Table>();
    let value = table.ok().and_then(|mut table| table.remove("v"));
    value.unwrap_or_else(|| text.into())
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
