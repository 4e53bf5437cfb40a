//! The image processors of transformers: their files, and the defaults of their classes.

use serde_json::{Map, Value};

use super::classes::{BIT, CLASSES, Class, Extent, VIT};
use super::export::{OF_TIMM, RESAMPLE};
use super::{Preprocessing, Source, Told};
use crate::PretrainedCfg;
use crate::directory::CONFIG_FILE;
use crate::model::MOST_CHANNELS;
use crate::numbers::{FLOOR, HALF_TO_EVEN, check_numbers};

/// Steps that are supported, or leave pixels as they are.
const KNOWN_STEPS: [&str; 7] = [
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
    "do_reduce_labels",
    "do_convert_annotations",
];
/// Further keys that change pixels, unless they are false or absent.
const UNKNOWN_STEPS: [&str; 5] = [
    "rescale_offset",
    "use_square_size",
    "keep_aspect_ratio",
    "max_size",
    "reducing_gap",
];

/// The steps of a processor's file, for the model with `config`.
pub(super) fn read(steps: &Value, config: &Value, file: &str) -> Result<Preprocessing, String> {
    let Value::Object(keys) = steps else {
        return Err(format!("describes no steps: {steps}, expected an object"));
    };
    let class = match type_name(keys)? {
        Some(name) if name == OF_TIMM => return of_timm(keys, config, file),
        Some(name) => find(&name)?,
        None => of_model(config)?,
    };
    File::new(keys, file, class).read(channels(config)?)
}

/// The defaults of the class for the model with `config`, whose directory has no such file.
pub(super) fn assumed(config: &Value) -> Result<Preprocessing, String> {
    let keys = config.as_object();
    if let Some(keys) = keys.filter(|keys| keys.contains_key("pretrained_cfg")) {
        return of_timm(keys, config, CONFIG_FILE);
    }
    let class = of_model(config).unwrap_or(&VIT);
    let keys = Map::new();
    let mut file = File::new(&keys, "", class);
    file.unsaid = Source::Assumed(format!(
        "no preprocessor_config.json, so the default of {}",
        class.name
    ));
    let mut steps = file.read(Some(3))?;
    if let Some(n) = channels(config)?.filter(|n| *n != 3) {
        (steps.channels, steps.mean.value, steps.std.value) = (n, vec![0.5; n], vec![0.5; n]);
    }
    Ok(steps)
}

/// The name of the class in a file, without the suffix of its implementation.
fn type_name(keys: &Map<String, Value>) -> Result<Option<String>, String> {
    for key in ["image_processor_type", "feature_extractor_type"] {
        match keys.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(name)) => {
                let name = name.replace("FeatureExtractor", "ImageProcessor");
                let bare = name.strip_suffix("Fast").or(name.strip_suffix("Pil"));
                return Ok(Some(bare.unwrap_or(&name).to_owned()));
            }
            Some(other) => return Err(format!("`{key}` is {other}, expected a name")),
        }
    }
    Ok(None)
}

fn find(name: &str) -> Result<&'static Class, String> {
    CLASSES.iter().find(|class| class.name == name).ok_or_else(|| {
        format!(
            "`image_processor_type` is {name}, whose steps are not supported, expected one of {} or \
             {OF_TIMM}",
            CLASSES.map(|class| class.name).join(", ")
        )
    })
}

fn of_model(config: &Value) -> Result<&'static Class, String> {
    let kind = config["model_type"].as_str().unwrap_or_default();
    let takes = |class: &&Class| class.models.split(' ').any(|model| model == kind);
    CLASSES.iter().find(takes).ok_or_else(|| {
        format!(
            "has no `image_processor_type`, and the model's `model_type` {kind:?} implies none \
             that wave supports"
        )
    })
}

/// Channels of the input, if the model's configuration has them.
fn channels(config: &Value) -> Result<Option<usize>, String> {
    let said = match &config["num_channels"] {
        Value::Null => &config["vision_config"]["num_channels"],
        said => said,
    };
    match said.as_u64() {
        None if said.is_null() => Ok(None),
        Some(n) if (1..=MOST_CHANNELS as u64).contains(&n) => Ok(Some(n as usize)),
        _ => Err(format!("`num_channels` is {said}, expected a number")),
    }
}

/// timm's steps. Keys of other classes have to agree with them.
fn of_timm(keys: &Map<String, Value>, config: &Value, file: &str) -> Result<Preprocessing, String> {
    let (said, at) = match keys.get("pretrained_cfg") {
        Some(said) => (said, file),
        None => (&config["pretrained_cfg"], CONFIG_FILE),
    };
    let said = crate::model::sayings(said)?;
    let cfg: PretrainedCfg = serde_json::from_value(Value::Object(said.clone()))
        .map_err(|cause| format!("`pretrained_cfg`: {cause}"))?;
    crate::model::check_prepared(&cfg)?;
    let source = |key: &str| match said.contains_key(key) {
        true => Source::File(format!("{at}: pretrained_cfg.{key}")),
        false => Source::Class("timm's PretrainedCfg".to_owned()),
    };
    let steps = Preprocessing::of_timm(&cfg, source);
    if keys.contains_key("size") {
        let mut own = File::new(keys, file, &BIT).read(Some(steps.channels))?;
        own.crop_offset.value = HALF_TO_EVEN.to_owned();
        let mut timms = steps.clone();
        timms.spread(timms.channels);
        let resized = |pct: f64| (timms.size.value[0] as f64 / pct).floor();
        // Several shares give the same number of pixels.
        if resized(own.crop_pct.value) == resized(timms.crop_pct.value) {
            own.crop_pct.value = timms.crop_pct.value;
        }
        let pairs = own.described().into_iter().zip(timms.described());
        for ((name, own, keys), (_, timms, _)) in pairs {
            if own != timms {
                return Err(format!(
                    "{keys} mean {name} {own}, `pretrained_cfg` says {timms}"
                ));
            }
        }
    }
    Ok(steps)
}

/// Input size, `crop_pct`, `crop_mode`, and the keys that they follow from.
type Geometry = ([usize; 2], f64, &'static str, Vec<&'static str>);

/// A file of a class.
struct File<'a> {
    keys: &'a Map<String, Value>,
    file: &'a str,
    class: &'a Class,
    /// The source of values that the file leaves out.
    unsaid: Source,
}

impl<'a> File<'a> {
    fn new(keys: &'a Map<String, Value>, file: &'a str, class: &'a Class) -> Self {
        File {
            keys,
            file,
            class,
            unsaid: Source::Class(class.name.to_owned()),
        }
    }

    fn read(&self, channels: Option<usize>) -> Result<Preprocessing, String> {
        self.refuse()?;
        let [mean, std] = self.normalisation(channels)?;
        let (size, crop_pct, crop_mode, keys) = self.geometry()?;
        check_numbers(&mean.value, &std.value, crop_pct).map_err(|found| {
            found
                .replace("`mean`", "`image_mean`")
                .replace("`std`", "`image_std`")
        })?;
        let n = mean.value.len();
        if channels.is_some_and(|channels| channels != n) || n == 0 {
            let channels = channels.unwrap_or(3);
            return Err(format!(
                "`image_mean` has {n} values for the {channels} channels of the model ({})",
                mean.source
            ));
        }
        let geometry = self.source(&keys);
        Ok(Preprocessing {
            channels: n,
            size: Told::new(size, &geometry),
            interpolation: self.interpolation()?,
            crop_pct: Told::new(crop_pct, &geometry),
            crop_mode: Told::new(crop_mode.to_owned(), &geometry),
            crop_offset: Told::new(FLOOR.to_owned(), &Source::Class("transformers".to_owned())),
            mean,
            std,
        })
    }

    /// A key's value; null counts as absent, as in transformers.
    fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    fn on(&self, key: &str, default: bool) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(on)) => Ok(*on),
            Some(other) => Err(format!("`{key}` is {other}, expected true or false")),
        }
    }

    /// The source of a value that `keys` decide together.
    fn source(&self, keys: &[&str]) -> Source {
        let (said, left): (Vec<&str>, Vec<&str>) =
            keys.iter().partition(|key| self.get(key).is_some());
        if said.is_empty() {
            return self.unsaid.clone();
        }
        let mut source = format!("{}: {}", self.file, said.join(", "));
        if !left.is_empty() {
            let (class, left) = (self.class.name, left.join(", "));
            source += &format!("; class default of {class}: {left}");
        }
        Source::File(source)
    }

    /// Refuses steps that change pixels and are not supported, by name.
    fn refuse(&self) -> Result<(), String> {
        let to_one = |factor: f64| (factor * 255.0 - 1.0).abs() < 1e-3;
        let factor = self.get("rescale_factor");
        let plain = factor.is_none_or(|factor| factor.as_f64().is_some_and(to_one));
        if !self.on("do_rescale", true)? || !plain {
            return Err("pixels are not scaled to 0..=1 (`do_rescale`, `rescale_factor`)".into());
        }
        if !self.on("do_resize", true)? {
            return Err("images are not resized (`do_resize` is false), expected a resize".into());
        }
        for (key, value) in self.keys {
            let off = matches!(value, Value::Null | Value::Bool(false));
            let step = key.starts_with("do_") && !KNOWN_STEPS.contains(&key.as_str());
            if !off && (step || UNKNOWN_STEPS.contains(&key.as_str())) {
                return Err(format!("`{key}` is {value}, which is not supported"));
            }
        }
        Ok(())
    }

    /// Mean and standard deviation of each channel.
    fn normalisation(&self, channels: Option<usize>) -> Result<[Told<Vec<f64>>; 2], String> {
        if !self.on("do_normalize", true)? {
            let n = channels.unwrap_or(3);
            let source = self.source(&["do_normalize"]);
            let all = |value: f64| Told::new(vec![value; n], &source);
            return Ok([all(0.0), all(1.0)]);
        }
        let numbers = |key: &str, default: &[f64; 3]| -> Result<Told<Vec<f64>>, String> {
            let values = match self.get(key) {
                None => default.to_vec(),
                Some(value) => serde_json::from_value(value.clone())
                    .map_err(|_| format!("`{key}` is {value}, expected a list of numbers"))?,
            };
            Ok(Told::new(values, &self.source(&[key])))
        };
        let (mean, std) = &self.class.norm;
        Ok([numbers("image_mean", mean)?, numbers("image_std", std)?])
    }

    fn geometry(&self) -> Result<Geometry, String> {
        let square = self.on("default_to_square", self.class.square)?;
        let size = match self.get("size") {
            None => self.class.size,
            Some(value) => extent("size", value, square)?,
        };
        let crops = self.class.crop.is_some_and(|(_, crops)| crops);
        let crops = self.on("do_center_crop", crops)?;
        let mut keys = vec!["size"];
        if let Some(default) = self.class.share {
            let name = self.class.name;
            let Extent::Shorter(side) = size else {
                let said = self.get("size").unwrap_or(&Value::Null);
                return Err(format!(
                    "`size` is {said}, expected `shortest_edge`, the only form that {name} accepts"
                ));
            };
            if crops && self.crop_size()? != [side; 2] {
                return Err(format!(
                    "`do_center_crop` is true and `crop_size` differs from `size`, which is not \
                     supported for {name}"
                ));
            }
            // Larger images are squashed.
            if side >= 384 {
                return Ok(([side; 2], 1.0, "squash", keys));
            }
            let pct = match self.get("crop_pct") {
                None => default,
                Some(value) => value
                    .as_f64()
                    .filter(|p| *p > 0.0 && *p <= 1.0)
                    .ok_or_else(|| format!("`crop_pct` is {value}, expected a number in 0..=1"))?,
            };
            keys.push("crop_pct");
            let resized = (side as f64 / pct).floor() as usize;
            return Ok(([side; 2], share(side, resized, pct), "center", keys));
        }
        if crops {
            keys.push("crop_size");
        }
        let (sides, cropped, whole) = match size {
            Extent::Shorter(side) => ([side; 2], "center", "none"),
            Extent::Both(sides) => (sides, "squash", "squash"),
        };
        if !crops {
            return Ok((sides, 1.0, whole, keys));
        }
        let crop = self.crop_size()?;
        let ([h, w], [ch, cw]) = (sides, crop);
        if ch > h || cw > w {
            return Err(format!(
                "`crop_size` {ch} x {cw} exceeds `size` {h} x {w}, which would pad images and is \
                 not supported"
            ));
        }
        if cropped == "squash" && crop == sides {
            return Ok((crop, 1.0, cropped, keys));
        }
        if cropped == "squash" && (h != w || ch != cw) {
            return Err(format!(
                "`size` {h} x {w} is cropped to `crop_size` {ch} x {cw}, which is supported for \
                 squares only"
            ));
        }
        Ok((crop, share(ch, h, ch as f64 / h as f64), cropped, keys))
    }

    fn crop_size(&self) -> Result<[usize; 2], String> {
        match (self.get("crop_size"), self.class.crop) {
            (Some(value), _) => match extent("crop_size", value, true)? {
                Extent::Both(sides) => Ok(sides),
                Extent::Shorter(_) => Err(format!(
                    "`crop_size` is {value}, expected `height` and `width`"
                )),
            },
            (None, Some((side, _))) => Ok([side; 2]),
            (None, None) => Err("`crop_size` is missing".to_owned()),
        }
    }

    /// Pillow's numbers.
    fn interpolation(&self) -> Result<Told<String>, String> {
        let name = match self.get("resample") {
            None => self.class.resample,
            Some(number) => match number.as_u64() {
                Some(n @ 0..=5) => RESAMPLE[n as usize],
                _ => return Err(format!("`resample` is {number}, expected 0 to 5")),
            },
        };
        Ok(Told::new(name.to_owned(), &self.source(&["resample"])))
    }
}

/// A share `p` with `floor(crop / p) == side`: `meant` if it has at most six decimals, else the shortest.
fn share(crop: usize, side: usize, meant: f64) -> f64 {
    let (n, exact) = (crop as f64, crop as f64 / side as f64);
    let gives = |p: f64| p > 0.0 && (n / p).floor() == side as f64;
    let six = (meant * 1e6).round() / 1e6;
    if six == meant && gives(meant) {
        return meant;
    }
    let cut = |digits| {
        let unit = 10_f64.powi(digits);
        (exact * unit).floor() / unit
    };
    (0..=6).map(cut).find(|p| gives(*p)).unwrap_or(exact)
}

/// `224`, `[224, 224]`, `{"shortest_edge": 224}` or `{"height": 224, "width": 224}`.
fn extent(key: &str, value: &Value, square: bool) -> Result<Extent, String> {
    let side = |value: &Value| match value.as_u64() {
        Some(n @ 1..=65_536) => Some(n as usize),
        _ => None,
    };
    let both = |height, width| Some(Extent::Both([side(height)?, side(width)?]));
    let found = match value {
        Value::Object(sides) => {
            let said = sides.iter().filter(|(_, side)| !side.is_null());
            let names: Vec<&str> = said.map(|(name, _)| name.as_str()).collect();
            match names[..] {
                ["shortest_edge"] => side(&value["shortest_edge"]).map(Extent::Shorter),
                ["height", "width"] | ["width", "height"] => {
                    both(&value["height"], &value["width"])
                }
                _ => None,
            }
        }
        Value::Array(pair) if pair.len() == 2 => both(&pair[0], &pair[1]),
        number if square => both(number, number),
        number => side(number).map(Extent::Shorter),
    };
    found.ok_or_else(|| {
        format!(
            "`{key}` is {value}, expected `shortest_edge` alone, or `height` and `width`, in pixels"
        )
    })
}
