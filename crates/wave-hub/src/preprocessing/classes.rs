//! The image processors of transformers, and their defaults.

/// The defaults of a class.
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) size: Extent,
    /// A bare number for `size` means both sides, not the shorter one.
    pub(super) square: bool,
    /// The sides of the crop, and whether it is made unless a file says.
    pub(super) crop: Option<(usize, bool)>,
    pub(super) resize: Resize,
    pub(super) resample: &'static str,
    pub(super) mean: [f64; 3],
    pub(super) std: [f64; 3],
}

/// What a class makes of `size`.
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

const HALF: [f64; 3] = [0.5; 3];
const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];
const CLIP_MEAN: [f64; 3] = [0.48145466, 0.4578275, 0.40821073];
const CLIP_STD: [f64; 3] = [0.26862954, 0.26130258, 0.27577711];

/// `ViTImageProcessor`, which others differ from.
pub(super) const VIT: Class = Class {
    name: "ViTImageProcessor",
    size: Extent::Both([224; 2]),
    square: true,
    crop: None,
    resize: Resize::Plain,
    resample: "bilinear",
    mean: HALF,
    std: HALF,
};

/// `BitImageProcessor`: the shorter side, then the middle.
pub(super) const BIT: Class = Class {
    name: "BitImageProcessor",
    size: Extent::Shorter(224),
    square: false,
    crop: Some((224, true)),
    resample: "bicubic",
    mean: CLIP_MEAN,
    std: CLIP_STD,
    ..VIT
};

/// The classes that are known, as of transformers 5.24.
pub(super) const CLASSES: [Class; 14] = [
    VIT,
    BIT,
    Class {
        name: "CLIPImageProcessor",
        ..BIT
    },
    Class {
        name: "ChineseCLIPImageProcessor",
        ..BIT
    },
    Class {
        name: "DeiTImageProcessor",
        size: Extent::Both([256; 2]),
        crop: Some((224, true)),
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "BeitImageProcessor",
        crop: Some((224, false)),
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "SiglipImageProcessor",
        square: false,
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "ConvNextImageProcessor",
        size: Extent::Shorter(384),
        square: false,
        resize: Resize::Share(224.0 / 256.0),
        resample: "bicubic",
        ..VIT
    },
    Class {
        name: "LevitImageProcessor",
        resize: Resize::Levit,
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
        ..BIT
    },
    // It resizes numbers that are not rounded to 8 bits; the difference is below half a level.
    Class {
        name: "DINOv3ViTImageProcessor",
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
        ..VIT
    },
    Class {
        name: "MobileNetV1ImageProcessor",
        ..MOBILE
    },
    Class {
        name: "MobileNetV2ImageProcessor",
        ..MOBILE
    },
    Class {
        name: "BlipImageProcessor",
        size: Extent::Both([384; 2]),
        resample: "bicubic",
        mean: CLIP_MEAN,
        std: CLIP_STD,
        ..VIT
    },
    Class {
        name: "PvtImageProcessor",
        resample: "bicubic",
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
        ..VIT
    },
];

const MOBILE: Class = Class {
    name: "MobileNetV1ImageProcessor",
    size: Extent::Shorter(256),
    resample: "bilinear",
    mean: HALF,
    std: HALF,
    ..BIT
};

/// The class that transformers takes for a `model_type`, where no file names one.
pub(super) const OF_MODELS: [(&str, &str); 34] = [
    ("vit", "ViTImageProcessor"),
    ("vit_msn", "ViTImageProcessor"),
    ("vit_mae", "ViTImageProcessor"),
    ("ijepa", "ViTImageProcessor"),
    ("swin", "ViTImageProcessor"),
    ("swinv2", "ViTImageProcessor"),
    ("swiftformer", "ViTImageProcessor"),
    ("deit", "DeiTImageProcessor"),
    ("beit", "BeitImageProcessor"),
    ("data2vec-vision", "BeitImageProcessor"),
    ("clip", "CLIPImageProcessor"),
    ("clip_vision_model", "CLIPImageProcessor"),
    ("metaclip_2", "CLIPImageProcessor"),
    ("mlcd", "CLIPImageProcessor"),
    ("aimv2", "CLIPImageProcessor"),
    ("chinese_clip", "ChineseCLIPImageProcessor"),
    ("siglip", "SiglipImageProcessor"),
    ("siglip_vision_model", "SiglipImageProcessor"),
    ("convnext", "ConvNextImageProcessor"),
    ("convnextv2", "ConvNextImageProcessor"),
    ("resnet", "ConvNextImageProcessor"),
    ("regnet", "ConvNextImageProcessor"),
    ("cvt", "ConvNextImageProcessor"),
    ("bit", "BitImageProcessor"),
    ("dinov2", "BitImageProcessor"),
    ("dinov2_with_registers", "BitImageProcessor"),
    ("hiera", "BitImageProcessor"),
    ("focalnet", "BitImageProcessor"),
    ("levit", "LevitImageProcessor"),
    ("dinov3_vit", "DINOv3ViTImageProcessor"),
    ("mobilenet_v1", "MobileNetV1ImageProcessor"),
    ("mobilenet_v2", "MobileNetV2ImageProcessor"),
    ("blip", "BlipImageProcessor"),
    ("pvt", "PvtImageProcessor"),
];
