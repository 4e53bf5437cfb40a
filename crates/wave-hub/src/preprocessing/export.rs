//! Preprocessing in transformers' format.

use serde_json::{Value, json};

use super::Preprocessing;
use crate::numbers::FLOOR;

/// Interpolations by Pillow's number.
pub(super) const RESAMPLE: [&str; 6] = [
    "nearest", "lanczos", "bilinear", "bicubic", "box", "hamming",
];

/// The class of transformers that applies timm's steps with timm itself.
pub(super) const OF_TIMM: &str = "TimmWrapperImageProcessor";

impl Preprocessing {
    /// The `preprocessor_config.json` of the same steps, as [`super::read_preprocessing`] reads it back.
    ///
    /// transformers' own classes round a crop's offset down. If these steps round half to even and the margin of some
    /// image may differ by that, or if they add borders, the class is the one that lets timm do it, by the `pretrained_cfg`
    /// that is written then. The keys of the nearest class of transformers' own are written too, for readers that know
    /// no other. The error says which step neither supports.
    pub fn processor(&self) -> Result<Value, String> {
        let by = &self.interpolation.value;
        let Some(resample) = RESAMPLE.iter().position(|name| name == by) else {
            return Err(format!(
                "images are resized by `{by}`, which transformers does not support"
            ));
        };
        let [height, width] = self.size.value;
        // The decimal that was meant: 0.9 has been an f32.
        let crop_pct = (self.crop_pct.value * 1e6).round() / 1e6;
        let resized = [height, width].map(|side| (side as f64 / crop_pct).floor() as u64);
        let floors = self.crop_offset.value == FLOOR;
        let mut steps = json!({
            "do_resize": true,
            "resample": resample,
            "do_rescale": true,
            "rescale_factor": 1.0 / 255.0,
            "do_normalize": true,
            "image_mean": self.mean.value,
            "image_std": self.std.value,
            "do_convert_rgb": self.channels == 3,
        });
        let mut crops = true;
        let own = match self.crop_mode.value.as_str() {
            "center" => {
                steps["size"] = json!({"shortest_edge": resized[0]});
                floors.then_some("BitImageProcessor")
            }
            "squash" => {
                steps["size"] = json!({"height": resized[0], "width": resized[1]});
                let margins = [resized[0] - height as u64, resized[1] - width as u64];
                crops = margins != [0, 0];
                // The roundings of half of 1, 5, 9 .. agree.
                match floors || margins.iter().all(|m| m % 4 != 3) {
                    _ if !crops => Some("ViTImageProcessor"),
                    true => Some("DeiTImageProcessor"),
                    false => None,
                }
            }
            _ => None,
        };
        steps["do_center_crop"] = json!(crops);
        steps["crop_size"] = json!({"height": height, "width": width});
        if let Some(class) = own {
            steps["image_processor_type"] = json!(class);
            return Ok(steps);
        }
        if floors {
            return Err(format!(
                "neither transformers nor timm supports `crop_mode` {} with offsets rounded down",
                self.crop_mode.value
            ));
        }
        if self.crop_mode.value != "center" {
            steps = json!({});
        }
        steps["image_processor_type"] = json!(OF_TIMM);
        steps["pretrained_cfg"] = json!({
            "input_size": [self.channels, height, width],
            "interpolation": by,
            "crop_pct": crop_pct,
            "crop_mode": self.crop_mode.value,
            "mean": self.mean.value,
            "std": self.std.value,
        });
        Ok(steps)
    }
}
