//! The image processors of transformers, and their defaults.

/// The defaults of a class.
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) size: Extent,
    /// A bare number for `size` means both sides, not the shorter one.
    pub(super) square: bool,
    /// The sides of the crop, and true if it is made by default.
    pub(super) crop: Option<(usize, bool)>,
    /// Below 384, images are resized to size / `crop_pct`, by default this, and cropped to size; else squashed.
    pub(super) share: Option<f64>,
    pub(super) resample: &'static str,
    /// Mean and deviation of each channel.
    pub(super) norm: ([f64; 3], [f64; 3]),
    /// Each `model_type` that wave reads and transformers uses the class for, if no file names one.
    pub(super) models: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Extent {
    /// The shorter side.
    Shorter(usize),
    /// Height and width.
    Both([usize; 2]),
}

const HALF: ([f64; 3], [f64; 3]) = ([0.5; 3], [0.5; 3]);
const IMAGENET: ([f64; 3], [f64; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
const CLIP: ([f64; 3], [f64; 3]) = (
    [0.48145466, 0.4578275, 0.40821073],
    [0.26862954, 0.26130258, 0.27577711],
);

/// `ViTImageProcessor`, which others differ from.
pub(super) const VIT: Class = Class {
    name: "ViTImageProcessor",
    models: "vit vit_msn",
    size: Extent::Both([224; 2]),
    square: true,
    crop: None,
    share: None,
    resample: "bilinear",
    norm: HALF,
};

/// `BitImageProcessor`: the shorter side, then the middle.
pub(super) const BIT: Class = Class {
    name: "BitImageProcessor",
    models: "dinov2 dinov2_with_registers",
    size: Extent::Shorter(224),
    square: false,
    crop: Some((224, true)),
    resample: "bicubic",
    norm: CLIP,
    ..VIT
};

/// The classes of the models that wave reads, as of transformers 5.24.
pub(super) const CLASSES: [Class; 8] = [
    VIT,
    BIT,
    Class {
        name: "CLIPImageProcessor",
        models: "clip clip_vision_model",
        ..BIT
    },
    Class {
        name: "DeiTImageProcessor",
        models: "deit",
        size: Extent::Both([256; 2]),
        crop: Some((224, true)),
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "BeitImageProcessor",
        models: "beit data2vec-vision",
        crop: Some((224, false)),
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "SiglipImageProcessor",
        models: "siglip siglip_vision_model",
        square: false,
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "ConvNextImageProcessor",
        models: "convnext convnextv2 resnet",
        size: Extent::Shorter(384),
        square: false,
        share: Some(224.0 / 256.0),
        resample: "bicubic",
        ..VIT
    },
    // It resizes numbers that are not rounded to 8 bits; the difference is below half a level.
    Class {
        name: "DINOv3ViTImageProcessor",
        models: "dinov3_vit",
        norm: IMAGENET,
        ..VIT
    },
];
