//! Searching a hub for models with a tag.

use super::HubSettings;
use super::client::Client;
use crate::HubError;

/// Maximum number of results.
const MOST: usize = 100;

/// A model repository that a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `OWNER/NAME`.
    pub name: String,
    /// Downloads in the last month.
    pub downloads: Option<u64>,
    /// The licence that its card names.
    pub license: Option<String>,
    /// The data sets that its card names.
    pub datasets: Vec<String>,
}

/// The 100 most downloaded model repositories with all of `tags`, of which the last should be the rarest.
pub fn search(settings: &HubSettings, tags: &[&str]) -> Result<Vec<Found>, HubError> {
    let about = format!("a search for {}", tags.join(", "));
    if settings.offline {
        let found = "HF_HUB_OFFLINE is set".to_owned();
        let remedy = "unset it, or drop --hub";
        return Err(HubError::remote(&about, found, remedy, true));
    }
    let client = Client::new(settings, &settings.cache)?;
    let listed = client.call(&about, || {
        // The hub filters by one tag.
        let hub = client.hub.list_models().sort("downloads").full(true);
        hub.maybe_filter(tags.last().copied()).limit(MOST).send()
    })?;
    let found = listed.into_iter().filter_map(|model| {
        let own = model.tags.unwrap_or_default();
        let named = |kind: &str| -> Vec<String> {
            let names = own.iter().filter_map(|tag| tag.strip_prefix(kind));
            names.map(str::to_owned).collect()
        };
        let has = |tag: &&str| own.iter().any(|own| own == tag);
        tags.iter().all(has).then(|| Found {
            name: model.id,
            downloads: model.downloads,
            license: named("license:").into_iter().next(),
            datasets: named("dataset:"),
        })
    });
    Ok(found.collect())
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
