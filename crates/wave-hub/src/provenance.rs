//! The origin of a template set: the sizes it was condensed for, and the condensations behind it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The provenance of a template set. Its fields are the ones that other stages use; the record itself is kept as it
/// was read, in its order, with any other keys.
///
/// ```
/// use serde_json::json;
/// use wave_hub::Provenance;
///
/// let provenance = Provenance::from(json!({ "seed": 7, "depths": [2, 12], "epochs": 1.5 }));
/// assert_eq!(provenance.depths, [2, 12]);
/// assert!(provenance.widths.is_empty());
/// assert_eq!(provenance.all_epochs(), [1.5]);
/// assert_eq!(provenance.record["seed"], 7);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct Provenance {
    /// Minimum and maximum number of layers condensed; empty if not recorded.
    pub depths: Vec<usize>,
    /// Widths condensed; empty if not recorded.
    pub widths: Vec<usize>,
    /// MLP ratios that steps sampled in addition to the auxiliary's.
    pub mlp_ratios: Vec<f64>,
    /// Head widths that steps sampled in addition to the auxiliary's.
    pub head_widths: Vec<usize>,
    /// Image sides that steps sampled in addition to the auxiliary's.
    pub image_sizes: Vec<usize>,
    /// Patch sides that steps sampled in addition to the auxiliary's.
    pub patches: Vec<usize>,
    /// Training data.
    pub data: Option<String>,
    /// Epochs of training.
    pub epochs: f64,
    /// The provenance of the templates that these grew from.
    pub grown: Option<Box<Provenance>>,
    /// The whole record, for cards.
    pub record: Value,
}

impl Provenance {
    /// Epochs of the condensations that it grew from, if any, and then of its own.
    pub fn all_epochs(&self) -> Vec<f64> {
        let before = self.grown.iter().flat_map(|before| before.all_epochs());
        before.chain([self.epochs]).collect()
    }
}

impl From<Value> for Provenance {
    fn from(record: Value) -> Provenance {
        let sizes = |key: &str| -> Vec<usize> {
            let all = record[key].as_array().into_iter().flatten();
            let all = all.map(|n| n.as_u64().map(|n| n as usize));
            all.collect::<Option<_>>().unwrap_or_default()
        };
        let ratios = record["mlp_ratios"].as_array().into_iter().flatten();
        let grown = &record["grown"];
        Provenance {
            depths: sizes("depths"),
            widths: sizes("widths"),
            mlp_ratios: ratios.filter_map(Value::as_f64).collect(),
            head_widths: sizes("head_widths"),
            image_sizes: sizes("image_sizes"),
            patches: sizes("patches"),
            data: record["data"].as_str().map(str::to_owned),
            epochs: record["epochs"].as_f64().unwrap_or(0.0),
            grown: (!grown.is_null()).then(|| Box::new(grown.clone().into())),
            record,
        }
    }
}

impl From<Provenance> for Value {
    fn from(provenance: Provenance) -> Value {
        provenance.record
    }
}
