//! The settings of the data.

use crate::settings::{self, AugmentationValues, Images, OptimisationValues, Training};
use anyhow::Result;
use wave_data::{Augment, Mixing, ResizedCrop};

/// The data settings with defaults filled in, except for values that depend on the images.
#[derive(Clone, Debug)]
pub struct DataPlan {
    /// Value of `--data`, if given.
    pub spec: Option<String>,
    /// Maximum number of training images.
    pub train_limit: Option<usize>,
    /// Maximum number of test images.
    pub test_limit: Option<usize>,
    /// Number of training images to hold out for testing.
    pub hold_out: Option<usize>,
    /// Mean and standard deviation of each channel, if given.
    pub normalisation: [Option<Vec<f64>>; 2],
    /// Images per training step.
    pub batch: usize,
    /// Augmentation of training images.
    pub augment: Augment,
    /// Number of augmented versions of each image, if they repeat.
    pub views: Option<u32>,
    /// Seed of repeated augmentations.
    pub view_seed: u64,
    /// Random seed of everything else.
    pub seed: u64,
}

impl DataPlan {
    /// The data of a training.
    pub fn new(training: &Training) -> Result<DataPlan> {
        settings::check(&training.augmentation)?;
        let augmentation = AugmentationValues::from(training.augmentation.clone());
        let optimisation = OptimisationValues::from(training.optimisation.clone());
        Ok(DataPlan {
            batch: optimisation.batch,
            views: augmentation.views,
            view_seed: augmentation.view_seed,
            augment: augment(augmentation)?,
            ..DataPlan::of_images(&training.images, Some(optimisation.seed))?
        })
    }

    /// A plan for images without augmentation or training steps.
    pub fn of_images(images: &Images, seed: Option<u64>) -> Result<DataPlan> {
        settings::check(images)?;
        let images = images.clone();
        Ok(DataPlan {
            spec: images.data,
            train_limit: images.train_limit,
            test_limit: images.test_limit,
            hold_out: images.hold_out,
            normalisation: [images.mean, images.std],
            batch: 1,
            augment: Augment::NONE,
            views: None,
            view_seed: 0,
            seed: seed.unwrap_or(0),
        })
    }
}

/// The augmentation with these settings.
fn augment(settings: AugmentationValues) -> Result<Augment> {
    let mixing = Mixing {
        mixup: settings.mixup,
        cutmix: settings.cutmix,
    };
    Ok(Augment {
        crop_padding: settings.crop_padding,
        flip: settings.flip,
        resized_crop: settings.resized_crop.map(|least| ResizedCrop {
            scale: (least, 1.0),
            ..ResizedCrop::default()
        }),
        rand_augment: settings
            .rand_augment
            .as_deref()
            .map(str::parse)
            .transpose()?,
        erasing: settings.erasing,
        mixing: (mixing.mixup > 0.0 || mixing.cutmix > 0.0).then_some(mixing),
        repeats: settings.repeats,
    })
}
