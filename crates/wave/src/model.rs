//! Models between disk and memory.

use crate::error::request;
use crate::hub;
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::path::Path;
use wave_data::Transform;
use wave_hub::{CardFront, ModelConfig, PretrainedCfg};
pub use wave_models::Network;
use wave_models::{Weights, convmixer};

/// A model as it stands in a directory.
#[derive(Clone, Debug)]
pub struct Model {
    /// Network and sizes.
    pub network: Network,
    /// Weights under timm's names.
    pub weights: Weights,
    /// How images become input.
    pub transform: Transform,
    /// A name for each class.
    pub label_names: Vec<String>,
    /// How the model came about.
    pub provenance: Value,
}

impl Model {
    /// Reads a model directory (timm's or transformers' layout, local or `hf:OWNER/NAME[@REV]`), or
    /// a safetensors file whose names tell the architecture.
    pub fn read(path: &Path) -> Result<Model> {
        let path = &hub::locate(path)?;
        if path.is_file() {
            let (weights, _) = wave_hub::read_tensors(path)?;
            return Model::from_parts(None, weights);
        }
        if path.is_dir() && wave_hub::is_transformers(path)? {
            return Model::from_transformers(path);
        }
        let (config, weights) = wave_hub::read_model(path)?;
        Model::from_parts(Some(config), weights)
    }

    /// Reads transformers' native layout.
    fn from_transformers(dir: &Path) -> Result<Model> {
        let (config, weights) = wave_hub::read_transformers(dir)?;
        let args = config.as_object().cloned().unwrap_or_default();
        let weights = wave_models::import(&weights)?;
        let network = Network::recognise("", &args, None, &weights)?;
        let (channels, image_size) = network.input();
        let (mean, std, crop_pct) = match wave_hub::read_preprocessing(dir)? {
            Some(p) => (p.mean, p.std, p.crop_pct),
            None => (vec![0.5; channels], vec![0.5; channels], 1.0),
        };
        let narrow = |values: Vec<f64>| values.into_iter().map(|v| v as f32).collect();
        let label = |i: usize| {
            let named = config["id2label"][i.to_string()].as_str();
            named.map_or_else(|| i.to_string(), String::from)
        };
        Ok(Model {
            label_names: (0..network.classes()).map(label).collect(),
            network,
            weights,
            transform: Transform {
                image_size,
                channels,
                mean: narrow(mean),
                std: narrow(std),
                crop_pct: crop_pct as f32,
            },
            provenance: Value::Null,
        })
    }

    fn from_parts(config: Option<ModelConfig>, weights: Weights) -> Result<Model> {
        let weights = wave_models::import(&weights)?;
        let image_size = config.as_ref().map(|c| c.pretrained_cfg.input_size[1]);
        let config = config.unwrap_or_else(|| ModelConfig {
            architecture: String::new(),
            num_classes: 0,
            num_features: 0,
            global_pool: String::new(),
            model_args: Map::new(),
            pretrained_cfg: PretrainedCfg::default(),
            label_names: None,
            wave: None,
        });
        let network = Network::recognise(
            &config.architecture,
            &config.model_args,
            image_size,
            &weights,
        )?;
        if config.num_classes != 0 && config.num_classes != network.classes() {
            return Err(request(format!(
                "config.json says {} classes, the weights have {}; correct the file that is wrong",
                config.num_classes,
                network.classes()
            )));
        }
        let (channels, image_size) = network.input();
        let fit = |values: &[f64], default: f32| -> Vec<f32> {
            if values.len() == channels {
                values.iter().map(|v| *v as f32).collect()
            } else {
                vec![default; channels]
            }
        };
        let cfg = &config.pretrained_cfg;
        let transform = Transform {
            image_size,
            channels,
            mean: fit(&cfg.mean, 0.5),
            std: fit(&cfg.std, 0.5),
            crop_pct: cfg.crop_pct as f32,
        };
        let classes = network.classes();
        let label_names = config
            .label_names
            .unwrap_or_else(|| (0..classes).map(|i| i.to_string()).collect());
        let provenance = config.wave.unwrap_or(Value::Null);
        Ok(Model {
            network,
            weights,
            transform,
            label_names,
            provenance,
        })
    }

    /// The model's `config.json`, in timm's terms.
    fn config(&self) -> Result<ModelConfig> {
        let t = &self.transform;
        let cfg = |first_conv: &str, classifier: &str| PretrainedCfg {
            tag: "wave".into(),
            input_size: [t.channels, t.image_size, t.image_size],
            fixed_input_size: true,
            crop_pct: decimal(t.crop_pct),
            mean: t.mean.iter().map(|v| decimal(*v)).collect(),
            std: t.std.iter().map(|v| decimal(*v)).collect(),
            num_classes: self.network.classes(),
            first_conv: Some(first_conv.into()),
            classifier: Some(classifier.into()),
            ..PretrainedCfg::default()
        };
        let (architecture, global_pool, args, pretrained_cfg) = match &self.network {
            Network::Vit(s) => {
                let pool = if s.class_token { "token" } else { "avg" };
                let args = json!({
                    "img_size": s.image_size,
                    "patch_size": s.patch,
                    "in_chans": s.channels,
                    "embed_dim": s.width,
                    "depth": s.depth,
                    "num_heads": s.heads,
                    "mlp_ratio": s.mlp_ratio,
                    "class_token": s.class_token,
                    "global_pool": pool,
                });
                let architecture = match s.distilled {
                    true => "deit_tiny_distilled_patch16_224",
                    false => "vit_tiny_patch16_224",
                };
                (architecture, pool, args, cfg("patch_embed.proj", "head"))
            }
            Network::ConvMixer(s) => {
                let args = json!({
                    "dim": s.width,
                    "depth": s.depth,
                    "kernel_size": s.kernel,
                    "patch_size": s.patch,
                    "in_chans": s.channels,
                });
                ("convmixer_1536_20", "avg", args, cfg("stem.0", "head"))
            }
            only_runs => {
                return Err(request(format!(
                    "{} only runs here, and is not written",
                    only_runs.family()
                )));
            }
        };
        Ok(ModelConfig {
            architecture: architecture.into(),
            num_classes: self.network.classes(),
            num_features: self.network.size().1,
            global_pool: global_pool.into(),
            model_args: args.as_object().cloned().unwrap_or_default(),
            pretrained_cfg,
            label_names: Some(self.label_names.clone()),
            wave: (!self.provenance.is_null()).then(|| self.provenance.clone()),
        })
    }

    /// Writes the model directory; `scalers` are those an expanded model was composed from.
    pub fn write(&self, dir: &Path, scalers: Option<&Weights>, summary: &str) -> Result<()> {
        let extra: Vec<(&str, &Weights)> = scalers
            .iter()
            .map(|s| ("scalers.safetensors", *s))
            .collect();
        if extra.is_empty() {
            // Scalers of an earlier model here would contradict these weights.
            match std::fs::remove_file(dir.join("scalers.safetensors")) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
        Ok(wave_hub::write_model(
            dir,
            &self.config()?,
            &self.weights,
            &extra,
            &self.card(summary),
        )?)
    }

    /// The number of values in all weights.
    pub fn parameters(&self) -> usize {
        self.weights
            .iter()
            .filter(|(name, _)| !convmixer::is_running_statistic(name))
            .map(|(_, t)| t.elem_count())
            .sum()
    }

    fn card(&self, summary: &str) -> String {
        let front = CardFront {
            license: Some("apache-2.0".into()),
            tags: vec!["image-classification".into(), "timm".into(), "wave".into()],
            library_name: Some("timm".into()),
            pipeline_tag: Some("image-classification".into()),
            ..CardFront::default()
        };
        let (depth, width) = self.network.size();
        // timm registers ConvMixers of fixed sizes only; these load from their weights by hand.
        let loading = match self.network {
            Network::Vit(_) => {
                "\n```python\nimport timm\nmodel = timm.create_model(\"local-dir:DIR\", \
                 pretrained=True)\n```\n"
            }
            _ => "",
        };
        let kind = self.network.family();
        let title = format!("{kind}, {depth} layers, width {width}");
        let t = &self.transform;
        let body = format!(
            "{summary}\n\n{} parameters, {} classes, input {} x {s} x {s}.\n{loading}",
            self.parameters(),
            self.network.classes(),
            t.channels,
            s = t.image_size,
        );
        wave_hub::model_card(&front, &title, &body)
    }
}

/// The shortest decimal that is this `f32`, so that 0.286 is not written 0.2860000133514404.
pub fn decimal(v: f32) -> f64 {
    v.to_string().parse().unwrap_or(f64::from(v))
}
