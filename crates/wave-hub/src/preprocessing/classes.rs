//! The image processors of transformers, and their defaults.

/// The defaults of a class.
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) size: Extent,
    /// A bare number for `size` means both sides, not the shorter one.
    pub(super) square: bool,
    /// The sides of the crop, and true if it is made by default.
    pub(super) crop: Option<(usize, bool)>,
    pub(super) resize: Resize,
    pub(super) resample: &'static str,
    /// Mean and deviation of each channel.
    pub(super) norm: ([f64; 3], [f64; 3]),
    /// Each `model_type` that transformers uses the class for, if no file names one.
    pub(super) models: &'static str,
}

/// The meaning of `size` in a class.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Resize {
    /// The image is resized to it.
    Plain,
    /// Below 384, it is resized to size / `crop_pct` and cropped to size; else squashed.
    Share(f64),
    /// The shorter side is resized to 256/224 of it.
    Levit,
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
    models: "vit vit_msn vit_mae ijepa swin swinv2 swiftformer",
    size: Extent::Both([224; 2]),
    square: true,
    crop: None,
    resize: Resize::Plain,
    resample: "bilinear",
    norm: HALF,
};

/// `BitImageProcessor`: the shorter side, then the middle.
pub(super) const BIT: Class = Class {
    name: "BitImageProcessor",
    models: "bit dinov2 dinov2_with_registers hiera focalnet",
    size: Extent::Shorter(224),
    square: false,
    crop: Some((224, true)),
    resample: "bicubic",
    norm: CLIP,
    ..VIT
};

/// The classes that are known, as of transformers 5.24.
pub(super) const CLASSES: [Class; 14] = [
    VIT,
    BIT,
    Class {
        name: "CLIPImageProcessor",
        models: "clip clip_vision_model metaclip_2 mlcd aimv2",
        ..BIT
    },
    Class {
        name: "ChineseCLIPImageProcessor",
        models: "chinese_clip",
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
        models: "convnext convnextv2 resnet regnet cvt",
        size: Extent::Shorter(384),
        square: false,
        resize: Resize::Share(224.0 / 256.0),
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "LevitImageProcessor",
        models: "levit",
        resize: Resize::Levit,
        norm: IMAGENET,
        ..BIT
    },
    // It resizes numbers that are not rounded to 8 bits; the difference is below half a level.
    Class {
        name: "DINOv3ViTImageProcessor",
        models: "dinov3_vit",
        norm: IMAGENET,
        ..VIT
    },
    MOBILE,
    Class {
        name: "MobileNetV2ImageProcessor",
        models: "mobilenet_v2",
        ..MOBILE
    },
    Class {
        name: "BlipImageProcessor",
        models: "blip",
        size: Extent::Both([384; 2]),
        resample: "bicubic",
        norm: CLIP,
        ..VIT
    },
    Class {
        name: "PvtImageProcessor",
        models: "pvt",
        resample: "bicubic",
        norm: IMAGENET,
        ..VIT
    },
];

const MOBILE: Class = Class {
    name: "MobileNetV1ImageProcessor",
    models: "mobilenet_v1",
    size: Extent::Shorter(256),
    resample: "bilinear",
    norm: HALF,
    ..BIT
};
