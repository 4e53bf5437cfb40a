//! A batch: images as network input, their labels, and their mixing.

/// Images as network input, with their labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// (size, channels, image_size, image_size)
    pub images: Vec<f32>,
    /// The class of each image.
    pub labels: Vec<u32>,
    /// The index of each image in its source.
    pub indices: Vec<u32>,
    /// Index of the view (the random augmentation); 0 without augmentation.
    pub view: u32,
    /// Number of images.
    pub size: usize,
    /// 1 or 3.
    pub channels: usize,
    /// Height and width in pixels.
    pub image_size: usize,
    /// The mixing of the images, if there was any.
    pub mix: Option<Mix>,
}

/// The mixing of a batch.
///
/// Input i is `weight` of itself and `1 - weight` of input `partners[i]`, pixel by pixel (Mixup) or by
/// area (CutMix), and so is its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Positions in the batch.
    pub partners: Vec<u32>,
    /// Weight of the input itself, 0 to 1.
    pub weight: f32,
}
