//! Groups of keys that several stages share.

use super::{DEFAULT_BATCH, Keep, LrSchedule, PrecisionChoice, Top};

keys! {
    /// Keys of every stage that trains on images.
    Training => TrainingValues {
    } with {
        images: Images => ImagesValues,
        optimisation: Optimisation => OptimisationValues,
        transformer: OfTransformers => OfTransformersValues,
        augmentation: Augmentation => AugmentationValues,
        saving: Checkpointing => CheckpointingValues,
    }
}

keys! {
    /// Training and test images.
    #[command(next_help_heading = "Images")]
    Images => ImagesValues {
        /// Images: fashion-mnist, shapes, a directory (ImageFolder, tar shards, IDX or CIFAR),
        /// a/{00000..00099}.tar, or hf:OWNER/NAME, a data set on a hub
        data<D>: String;
        /// Train on the first N images of a seeded shuffle [default: all]
        train_limit<N>: usize, 1.0..=1e12;
        /// Test on the first N images of a seeded shuffle, or with --hold-out on all that it holds out [default: all]
        test_limit<N>: usize, 1.0..=1e12;
        /// Hold out N training images and test on them instead of the test set
        hold_out<N>: usize, 1.0..=1e12;
        /// Mean of each channel, 0 to 1 [default: measured]
        mean<X ','>: Vec<f64>, 0.0..=1.0;
        /// Standard deviation of each channel, 0 to 1 [default: measured]
        std<X ','>: Vec<f64>, 1e-4..=1.0;
    }
}

keys! {
    /// Duration and optimiser.
    #[command(next_help_heading = "Training")]
    Optimisation => OptimisationValues {
        /// Epochs: passes over the training images (or give --steps)
        epochs<N>: f64, 0.0..=1e6;
        /// Number of optimiser steps (or give --epochs)
        steps<N>: u64, 0.0..=1e12;
        /// Global batch size. Choose the learning rate to match [default: 128]
        batch<N>: usize = DEFAULT_BATCH, 1.0..=1e9;
        /// Gradient accumulation over N micro-batches, to save memory. N must divide the batch, or each rank's share of
        /// it. Batch norms of a ConvMixer see one micro-batch at a time [default: 1]
        accumulate<N>: usize = 1, 1.0..=1e9;
        /// Peak learning rate of AdamW and Muon [default: 0.0005; for expand 0.01]
        lr<X>: f64, 0.0..=100.0;
        /// Learning-rate schedule: cosine with warm-up; or triangular (linear from 0 to the peak at 2/5 of training, to
        /// a twentieth of it at 4/5, to 0 at the end) [default: cosine]
        lr_schedule<SHAPE>: LrSchedule = LrSchedule::Cosine;
        /// Final learning rate of the cosine schedule, as a fraction of the peak [default: 0.01]
        min_lr_ratio<X>: f64 = 0.01, 0.0..=1.0;
        /// Weight decay of matrices (never of biases, norms or position embeddings) [default: 0.05; for expand 0]
        weight_decay<X>: f64, 0.0..=100.0;
        /// Learning-rate warm-up, in epochs [default: a twentieth of training]
        warmup_epochs<X>: f64, 0.0..=1e6;
        /// Label smoothing, 0 to 1 [default: 0]
        label_smoothing<X>: f64 = 0.0, 0.0..=1.0;
        /// Decay of the EMA of the weights, at most (1 + t) / (10 + t) at step t; the averaged weights are written
        /// [default: none]
        ema<X>: f64, 0.0..=0.999_999;
        /// Gradient-norm clipping threshold [default: 1]
        clip<X>: f64 = 1.0, 1e-9..=1e9;
        /// Test every N epochs and at the end; 0 tests only at the end [default: 1]
        test_epochs<N>: u64 = 1, 0.0..=1e6;
        /// Early-stopping patience, in tests (see --test-epochs); use with --keep best and --hold-out [default: none]
        patience<N>: usize, 1.0..=1e6;
        /// Time limit in minutes; the model trained so far is written [default: none]
        time_limit<MINUTES>: f64, 0.0..=1e6;
        /// Random seed [default: 0]
        seed<N>: u64 = 0;
    }
}

keys! {
    /// Training of image networks; most keys apply to transformers only.
    #[command(next_help_heading = "Training")]
    OfTransformers => OfTransformersValues {
        /// Drop path (stochastic depth): rate at the last layer, rising linearly from 0 at the first
        /// [default: 0]
        drop_path<X>: f64 = 0.0, 0.0..=0.99;
        /// Use Muon for the matrices of blocks, templates and scalers: it orthogonalises their momentum before each
        /// step. AdamW trains the rest. Needs several times fewer epochs far from convergence [default: true for a
        /// condensation that trains weights, else false]
        muon<BOOL>: bool;
        /// Precision of a transformer's matrix products in training; auto uses bf16 where the processor multiplies it
        /// faster [default: f32]
        precision<P>: PrecisionChoice = PrecisionChoice::F32;
        /// Activation checkpointing: recompute a block's activations in the backward pass. Same results, less memory, a
        /// third more time [default: false]
        recompute<BOOL>: bool = false;
    }
}

keys! {
    /// Augmentation of training images.
    #[command(next_help_heading = "Augmentation")]
    Augmentation => AugmentationValues {
        /// Padding in pixels before random crops [default: 0]
        crop_padding<N>: usize = 0, 0.0..=1e6;
        /// Random horizontal flips [default: false]
        flip<BOOL>: bool = false;
        /// RandomResizedCrop: minimum fraction of the image's area, 0 to 1 (0.08 is usual) [default: none]
        resized_crop<X>: f64, 1e-4..=1.0;
        /// RandAugment in timm's notation, such as rand-m9-mstd0.5-inc1 [default: none]
        rand_augment<POLICY>: String;
        /// Random erasing: probability of replacing a rectangle with noise [default: 0]
        erasing<X>: f64, 0.0..=1.0;
        /// Mixup alpha (0.8 is usual) [default: 0]
        mixup<X>: f64 = 0.0, 0.0..=100.0;
        /// CutMix alpha (1 is usual) [default: 0]
        cutmix<X>: f64 = 0.0, 0.0..=100.0;
        /// Repeated augmentation: number of consecutive augmented copies of each image [default: 1]
        repeats<N>: usize = 1, 1.0..=1000.0;
        /// Number of versions of each image that the ancestor sees, used in turn: 1 is the whole image, more are
        /// augmented ones. Later rounds augment them anew but reuse the ancestor's outputs [default: a new version each
        /// epoch]
        views<N>: u32, 1.0..=u32::MAX as f64;
        /// Random seed of the augmented versions (--views, --cache); independent of --seed, so that runs share a cache
        /// [default: 0]
        view_seed<N>: u64 = 0;
    }
}

keys! {
    /// Checkpoints, and the weights written at the end.
    #[command(next_help_heading = "Checkpoints")]
    Checkpointing => CheckpointingValues {
        /// Also save a checkpoint every N steps, not only after every epoch
        checkpoint_steps<N>: u64;
        /// Also save a checkpoint every X minutes; 0 never [default: 10]
        checkpoint_minutes<X>: f64 = 10.0, 0.0..=1e6;
        /// Weights to write: last, or best by test accuracy (add --hold-out to keep the test images unseen)
        /// [default: last]
        keep<WHICH>: Keep = Keep::Last;
    }
}

keys! {
    /// Keys of every command whose steps sample from `--depths` and `--widths`.
    #[command(next_help_heading = "Sampled sizes")]
    Elastic => ElasticValues {
        /// Curriculum: fraction of training, 0 to 1, over which the sampled sizes grow from the smallest [default: 0.9;
        /// for finetune 0]
        growth<X>: f64, 0.0..=1.0;
        /// Exponent of the growth curve: 1 is linear; larger values keep sizes small for longer [default: 3]
        growth_power<P>: f64 = 3.0, 0.01..=100.0;
    }
}

keys! {
    /// Keys of `wave condense` and `adapt` for properties sampled in addition to depth and width.
    #[command(next_help_heading = "Sampled shapes")]
    Variants => VariantsValues {
        /// MLP ratios (hidden channels / width) to sample for some of the models [default: the auxiliary's]
        mlp_ratios<X ','>: Vec<f64> = Vec::new(), 0.001..=1000.0;
        /// Head widths to sample for some of the models, if they divide the width [default: the auxiliary's]
        head_widths<N ','>: Vec<usize> = Vec::new(), 1.0..=1e6;
        /// Image sizes in pixels to sample for some of the models; images are resized [default: the auxiliary's]
        image_sizes<N ','>: Vec<usize> = Vec::new(), 1.0..=100_000.0;
        /// Patch sizes in pixels to sample for some of the models, if they divide the image size [default: the
        /// auxiliary's]
        patches<N ','>: Vec<usize> = Vec::new(), 1.0..=100_000.0;
        /// Fraction of the models, 0 to 1, whose shape is sampled from these lists; the others are like the auxiliary
        /// [default: 0.5]
        variant_share<X>: f64, 0.0..=1.0;
    }
}

keys! {
    /// Keys of every command that distils an ancestor.
    Outputs => OutputsValues {
        /// Cache directory for the ancestor's outputs: the ancestor runs once per image and view (see --views; without
        /// it each epoch is a view). Runs with other templates, sizes and seeds reuse them. Not with --mixup, --cutmix
        /// or --repeats
        cache<DIR>: String;
        /// Number of most probable classes to cache per image, or all; other classes share the remaining probability
        /// [default: 16]
        cache_top<K>: Top = Top::Most(16);
    }
}

keys! {
    /// Keys of every command that runs a CLIP or SigLIP.
    #[derive(Eq, PartialOrd, Ord)]
    #[command(next_help_heading = "CLIP and SigLIP")]
    ZeroShot => ZeroShotValues {
        /// Class names for CLIP or SigLIP, embedded by its text tower: a text file with one name per line, in the order
        /// of the data's classes if it has any
        labels<FILE>: String;
        /// Prompt, with {} for the class name. Repeat the flag to average the embeddings of several prompts
        /// [default: "a photo of a {}."]
        prompt<TEXT>: Vec<String>;
    }
}
