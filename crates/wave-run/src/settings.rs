//! The keys of each stage, declared once: they are its flags and its recipe table.

use crate::error::request;
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use wave_models::vit::VitShape;

mod batch;
mod duration;
mod eval;
mod hypernetwork;
mod meta;
mod precision;
mod ranges;
mod sequence;
mod speed;
mod top;

pub use batch::{BatchSize, DEFAULT_BATCH};
pub use duration::Duration;
pub use eval::Eval;
pub use hypernetwork::Hypernetwork;
pub use meta::{Distribution, Meta};
pub use precision::mode;
pub use ranges::check;
pub use ranges::check_table;
pub use sequence::Sequence;
pub use speed::Speed;
pub use top::Top;

/// Keys of every stage that trains.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Training")]
pub struct Training {
    /// Images: fashion-mnist, shapes, a directory (ImageFolder, tar shards, IDX or CIFAR), or
    /// a/{00000..00099}.tar; for a sequence network, a task: copy, stack, recall or sort, with sizes:
    /// copy:length=16,symbols=16
    #[arg(long, value_name = "D")]
    pub data: Option<String>,
    /// Train on the first N images of a seeded shuffle [default: all]
    #[arg(long, value_name = "N")]
    pub train_limit: Option<usize>,
    /// Test on the first N images of a seeded shuffle [default: all]
    #[arg(long, value_name = "N")]
    pub test_limit: Option<usize>,
    /// Keep N training images apart and test on them instead of the test images
    #[arg(long, value_name = "N")]
    pub hold_out: Option<usize>,
    /// Passes over the training images (or give --steps)
    #[arg(long, value_name = "N")]
    pub epochs: Option<f64>,
    /// Optimiser steps (or give --epochs)
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Images in a step, of all ranks together: a number, or auto, the largest power of two, up to
    /// 1024, that fits in memory. The learning rate goes with it [default: 128; of token sequences
    /// 32]
    #[arg(long, value_name = "N")]
    pub batch: Option<BatchSize>,
    /// Compute a step in N equal parts and add up their gradients: the same step in less memory. N
    /// divides the batch, or a rank's share of it. A ConvMixer's norms then see a part at a time,
    /// so its steps differ [default: 1]
    #[arg(long, value_name = "N")]
    pub accumulate: Option<usize>,
    /// Peak learning rate of AdamW [default: 0.0005; of expand 0.01, of token sequences 0.005]
    #[arg(long, value_name = "X")]
    pub lr: Option<f64>,
    /// Last learning rate as a fraction of the peak (cosine) [default: 0.01]
    #[arg(long, value_name = "X")]
    pub min_lr_ratio: Option<f64>,
    /// Weight decay of matrices (never of biases, norms and positions) [default: 0.05; of expand 0,
    /// of token sequences 0.1]
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f64>,
    /// Epochs over which the learning rate rises [default: a twentieth of the training]
    #[arg(long, value_name = "X")]
    pub warmup_epochs: Option<f64>,
    /// Share of each target spread over all classes, 0 to 1 [default: 0]
    #[arg(long, value_name = "X")]
    pub label_smoothing: Option<f64>,
    /// Probability of dropping the last layer's branches, rising linearly from 0 at the first
    /// [default: 0]
    #[arg(long, value_name = "X")]
    pub drop_path: Option<f64>,
    /// Decay of a moving average of the weights, which is then what is written [default: none]
    #[arg(long, value_name = "X")]
    pub ema: Option<f64>,
    /// Largest norm of the gradient [default: 1]
    #[arg(long, value_name = "X")]
    pub clip: Option<f64>,
    /// Factor on the learning rate from each layer to the one below it [default: 1]
    #[arg(long, value_name = "X")]
    pub layer_decay: Option<f64>,
    /// Pixels of padding for random crops [default: 0]
    #[arg(long, value_name = "N")]
    pub crop_padding: Option<usize>,
    /// Mirror images at random [default: false]
    #[arg(long, value_name = "BOOL")]
    pub flip: Option<bool>,
    /// Random crops of at least this part of the image's area, resized; 0 to 1 (0.08 is usual)
    /// [default: none]
    #[arg(long, value_name = "X")]
    pub resized_crop: Option<f64>,
    /// RandAugment in timm's notation, such as rand-m9-mstd0.5-inc1 [default: none]
    #[arg(long, value_name = "POLICY")]
    pub rand_augment: Option<String>,
    /// One of grey, solarised and blurred (DeiT III) [default: false]
    #[arg(long, value_name = "BOOL")]
    pub three_augment: Option<bool>,
    /// Random brightness, contrast and saturation by up to this part [default: 0]
    #[arg(long, value_name = "X")]
    pub colour_jitter: Option<f32>,
    /// Probability of covering a random rectangle with noise [default: 0]
    #[arg(long, value_name = "X")]
    pub erasing: Option<f64>,
    /// Mixup: parameter of the Beta distribution of its weight (0.8 is usual) [default: 0]
    #[arg(long, value_name = "X")]
    pub mixup: Option<f64>,
    /// CutMix: parameter of the Beta distribution of its weight (1 is usual) [default: 0]
    #[arg(long, value_name = "X")]
    pub cutmix: Option<f64>,
    /// Show each image of an epoch so many times in a row, differently varied [default: 1]
    #[arg(long, value_name = "N")]
    pub repeats: Option<usize>,
    /// Number of augmented versions of each image, taken in turn [default: a new one each epoch]
    #[arg(long, value_name = "N")]
    pub views: Option<u32>,
    /// Seed of the versions that --views repeat and --cache keeps, which other seeds share
    /// [default: 0]
    #[arg(long, value_name = "N")]
    pub view_seed: Option<u64>,
    /// Mean of each channel, 0 to 1 [default: measured]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub mean: Option<Vec<f64>>,
    /// Standard deviation of each channel, 0 to 1 [default: measured]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub std: Option<Vec<f64>>,
    /// Matrix products of a transformer's blocks while it trains: f32, bf16, or auto (bf16 where
    /// the processor multiplies it faster) [default: f32]
    #[arg(long, value_name = "P")]
    pub precision: Option<String>,
    /// Keep nothing from inside a transformer's blocks for the backward pass, and compute it again
    /// there: the same values, in less memory and a third more time [default: false]
    #[arg(long, value_name = "BOOL")]
    pub recompute: Option<bool>,
    /// Save the state every N steps as well as after every epoch
    #[arg(long, value_name = "N")]
    pub checkpoint_steps: Option<u64>,
    /// Save the state every so many minutes as well; 0 never [default: 10]
    #[arg(long, value_name = "X")]
    pub checkpoint_minutes: Option<f64>,
    /// What is written at the end: the last values, or the best, those of the epoch that tested best
    /// (on --hold-out, if the test is to stay one) [default: last]
    #[arg(long, value_name = "WHICH")]
    pub keep: Option<String>,
    /// Seed of everything random [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Keys of every stage that writes a model.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "What is written")]
#[group(skip)]
pub struct Output {
    /// Layout of the model directory: timm; transformers (its native ViT, for models with a class
    /// token); or onnx (timm's, and the same model as a graph in model.onnx) [default: timm]
    #[arg(long, value_name = "LAYOUT")]
    pub format: Option<String>,
    /// Numbers that the weights are stored as: f32, f16 or bf16 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,
}

/// Keys of `wave condense`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Condense {
    /// The frozen model to distil: a model directory
    #[arg(long, value_name = "A")]
    pub ancestor: Option<String>,
    /// distil, or factorise: the templates nearest to the weights of an ancestor that is itself a
    /// vision transformer, in closed form and without data. Exact for weights that templates
    /// composed; freely trained weights keep little more than noise does, so it tells how
    /// template-like a model is. With epochs or steps it is where distilling starts
    /// [default: distil]
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// Depths of the auxiliary: one number is plain WAVE, two are the least and the most of an
    /// elastic condensation, which draws one at each step
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub depths: Option<Vec<usize>>,
    /// Share of the steps, 0 to 1, over which the most of --depths grows from the least, and the
    /// widest of --widths from the narrowest: small models first, whose steps cost less and teach the
    /// templates as much [default: 0.9]
    #[arg(long, value_name = "X")]
    pub growth: Option<f64>,
    /// Power with which they grow over that share: 1 is linear, more stays small for longer
    /// [default: 3]
    #[arg(long, value_name = "P")]
    pub growth_power: Option<f64>,
    /// Widths of the auxiliary, one drawn at each step
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub widths: Option<Vec<usize>>,
    /// Side of a template [default: the auxiliary's narrowest width]
    #[arg(long, value_name = "T")]
    pub template_size: Option<usize>,
    /// Templates of qkv, proj, fc1 and fc2 [default: 24 of the auxiliary's narrowest width, or
    /// their equal in smaller ones]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub templates: Option<Vec<usize>>,
    /// Let fc1 and fc2 share one set of templates [default: false]
    #[arg(long, value_name = "BOOL")]
    pub share_mlp: Option<bool>,
    /// Numbers that the templates, and all that travels with them, are stored as: f32, f16 or bf16
    /// [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,
    /// Order of the Kronecker product: tile or interleave [default: tile]
    #[arg(long, value_name = "ORDER")]
    pub kronecker: Option<String>,
    /// Scaler anchors over the depth [default: the auxiliary's depth]
    #[arg(long, value_name = "K")]
    pub anchors: Option<usize>,
    /// First templates: mimetic, the attention of two layers whose products look like a trained
    /// network's, with sinusoidal positions; or xavier, independent numbers [default: mimetic]
    #[arg(long, value_name = "START")]
    pub template_start: Option<String>,
    /// First scalers: ramp, telg (a base and a slope), share (one block for all layers) or random.
    /// With --scaler-lr-ratio 0 they stay: telg with 2 anchors is then TLEG, whose layer l of L is
    /// B + (l/L) A at every depth, share with 1 is Share Init [default: ramp]
    #[arg(long, value_name = "START")]
    pub scaler_start: Option<String>,
    /// Weight of the divergence from the ancestor [default: 1]
    #[arg(long, value_name = "X")]
    pub kl_weight: Option<f64>,
    /// Weight of the cross-entropy with the labels. With 0 there need be none: --data may be a
    /// directory of images, or have one in its train/, the classes are the ancestor's, and nothing
    /// is tested [default: 1]
    #[arg(long, value_name = "X")]
    pub ce_weight: Option<f64>,
    /// Temperature of the distillation [default: 1]
    #[arg(long, value_name = "X")]
    pub temperature: Option<f64>,
    /// Keep the ancestor's outputs in this directory, by view (see --views; without, each epoch is
    /// one): it runs once for each image and view, whatever the templates, sizes and seeds of this
    /// run and of later ones. Not with --mixup, --cutmix or --repeats, whose images come but once
    #[arg(long, value_name = "DIR")]
    pub cache: Option<String>,
    /// Classes that the cache keeps of each image, a number or all: the most probable ones; the
    /// others share what probability is left [default: 16]
    #[arg(long, value_name = "K")]
    pub cache_top: Option<Top>,
    /// Learning rate of the scalers over that of the rest [default: 1]
    #[arg(long, value_name = "X")]
    pub scaler_lr_ratio: Option<f64>,
    /// Learning rate of the templates over that of the rest [default: 1]
    #[arg(long, value_name = "X")]
    pub template_lr_ratio: Option<f64>,
    /// The auxiliary's largest shape
    #[arg(skip)]
    #[serde(default)]
    pub auxiliary: Auxiliary,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub training: Training,
}

/// The auxiliary's shape, `[condense.auxiliary]`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Auxiliary {
    /// Blocks.
    pub depth: Option<usize>,
    /// Channels of a token.
    pub width: Option<usize>,
    /// Channels of a head.
    pub head_width: Option<usize>,
    /// Side of a patch in pixels.
    pub patch: Option<usize>,
    /// Side of the image in pixels.
    pub image_size: Option<usize>,
    /// Hidden channels of the MLP over the width.
    pub mlp_ratio: Option<f64>,
    /// Whether a class token is classified instead of the mean token.
    pub class_token: Option<bool>,
}

impl From<&VitShape> for Auxiliary {
    fn from(shape: &VitShape) -> Auxiliary {
        Auxiliary {
            depth: Some(shape.depth),
            width: Some(shape.width),
            head_width: Some(shape.head_width()),
            patch: Some(shape.patch),
            image_size: Some(shape.image_size),
            mlp_ratio: Some(shape.mlp_ratio),
            class_token: Some(shape.class_token),
        }
    }
}

/// Keys of `wave expand`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Expand {
    /// Blocks of the model
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Channels of a token; a multiple of the templates' head width
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Attention heads [default: width / the templates' head width]
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Hidden channels of the MLP over the width [default: the templates']
    #[arg(long, value_name = "X")]
    pub mlp_ratio: Option<f64>,
    /// Side of an image in pixels: positions are resized [default: the templates']
    #[arg(long, value_name = "N")]
    pub image_size: Option<usize>,
    /// Side of a patch in pixels: patch embeddings and positions are resized [default: the
    /// templates']
    #[arg(long, value_name = "N")]
    pub patch: Option<usize>,
    /// Instead of a size: the best within so many parameters, such as 8M. Expected accuracy is what
    /// the templates recorded when they were condensed
    #[arg(long, value_name = "N")]
    pub max_params: Option<String>,
    /// Instead of a size: the best within so many multiply-adds (MACs) an image, such as 1.2G
    #[arg(long, value_name = "N", alias = "max-flops")]
    pub max_macs: Option<String>,
    /// Instead of a size: the best whose forward pass of one image takes at most so long on this
    /// machine
    #[arg(long, value_name = "MS")]
    pub max_latency_ms: Option<f64>,
    /// First scalers: bank (interpolated) or random (the WAVE paper's wording) [default: bank]
    #[arg(long, value_name = "START")]
    pub scalers: Option<String>,
    /// Norms and biases of the blocks, which templates do not cover: inherit (interpolated),
    /// mimetic or timm [default: inherit]
    #[arg(long, value_name = "FROM")]
    pub fill: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub output: Output,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub training: Training,
}

/// Keys of `wave init`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Init {
    /// Architecture: vit, convmixer, convnext, gpsa, convolution-inside, convolution-outside or
    /// convolution-positive; of token sequences, mamba2, mamba, linear-attention or transformer;
    /// population: many small networks [default: vit]
    #[arg(long, value_name = "A")]
    pub arch: Option<String>,
    /// Networks of a population [default: 500]
    #[arg(long, value_name = "N")]
    pub networks: Option<usize>,
    /// Blocks
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Channels of a token
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Attention heads [default: width / 64, or the head width of --from]; heads of mamba2 [default:
    /// width / 32]
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Hidden channels of the MLP over the width [default: 4, or that of --from]
    #[arg(long, value_name = "X")]
    pub mlp_ratio: Option<f64>,
    /// Side of a patch in pixels [default: 16, or 7 of a convmixer or a convnext, if that divides the image
    /// into at least 4 x 4; else 7, 4 or the largest up to 16 that does]
    #[arg(long, value_name = "N")]
    pub patch: Option<usize>,
    /// Side of the image in pixels [default: that of the images of --data, if all are of one size and
    /// not larger; else 224]
    #[arg(long, value_name = "N")]
    pub image_size: Option<usize>,
    /// Colour channels
    #[arg(long, value_name = "N")]
    pub channels: Option<usize>,
    /// Classes
    #[arg(long, value_name = "N")]
    pub classes: Option<usize>,
    /// Side of a depthwise kernel (convmixer, convnext) or of a convolution in attention; taps of the
    /// convolution (mamba2, mamba)
    #[arg(long, value_name = "N")]
    pub kernel: Option<usize>,
    /// Dilation of depthwise kernels (convmixer): a digit for all layers, one for each, such as
    /// 11223333, or one of the thesis' schedules A to H [default: 1]
    #[arg(long, value_name = "D")]
    pub dilation: Option<String>,
    /// Variance of the bump in `covariance` filters, in pixels²: at the first layer, its velocity and
    /// its acceleration over depth [default: 0.08,0.37,2.9]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub filter_variance: Option<Vec<f64>>,
    /// What becomes of a covariance's negative eigenvalues: clip or absolute [default: clip]
    #[arg(long, value_name = "HOW")]
    pub negative: Option<String>,
    /// Replace covariances of filters by the nearest Kronecker squares [default: false]
    #[arg(long, value_name = "BOOL")]
    pub factored: Option<bool>,
    /// Classify a class token instead of the mean token
    #[arg(long, value_name = "BOOL")]
    pub class_token: Option<bool>,
    /// Position embedding: learned or sinusoidal [default: sinusoidal for mimetic]
    #[arg(long, value_name = "KIND")]
    pub positions: Option<String>,
    /// Scale of a sinusoidal position embedding [default: 2 for images of up to 64 pixels, else 1]
    #[arg(long, value_name = "X")]
    pub position_scale: Option<f64>,
    /// Mean shift of the MLP's first layer: none; eq1=SIGMA, a normal number for each input; or eq2=B,
    /// one for all. SIGMA and B are in standard deviations of the layer's weights [default: none; of
    /// mlp-mean eq2=0.5]
    #[arg(long, value_name = "SHIFT")]
    pub mlp_mean: Option<String>,
    /// Mimetic queries and keys: alpha,beta of W_Q W_K^T = alpha Z + beta I; 0,0 leaves them as --rest
    /// fills them [default: 0.7,0.7; of gpsa 0,0; of token sequences 0,0.5]
    #[arg(
        long,
        value_name = "X",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pub qk: Option<Vec<f64>>,
    /// Mimetic V and projection: alpha,beta of W_V W_proj = alpha Z - beta I; 0,0 leaves them as --rest
    /// fills them [default: 0.4,0.4; of token sequences 0.2,0.2]
    #[arg(
        long,
        value_name = "X",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pub vp: Option<Vec<f64>>,
    /// How mimetic V and projection are stored: paper or code [default: paper]
    #[arg(long, value_name = "LAYOUT")]
    pub vp_layout: Option<String>,
    /// Scale of layerscale, 0 to 1 [default: 0.1]
    #[arg(long, value_name = "X")]
    pub gamma: Option<f64>,
    /// What zero fills: query-key, attention (values and projection too), or blocks (all matrices of a
    /// block) [default: attention]
    #[arg(long, value_name = "WHAT")]
    pub zero: Option<String>,
    /// What layerscale scales: branch or skip [default: branch]
    #[arg(long, value_name = "WHAT")]
    pub scaled: Option<String>,
    /// What fills the weights that a method leaves alone: he, timm, xavier or mimetic [default: timm];
    /// of mimetic and layerscale timm or xavier
    #[arg(long, value_name = "METHOD")]
    pub rest: Option<String>,
    /// Which layers of a deeper --from are taken: first or uniform [default: first]
    #[arg(long, value_name = "WHICH")]
    pub layers: Option<String>,
    /// Blocks that heru-lg and auto-lg take [default: 3 and 4]
    #[arg(long, value_name = "N")]
    pub blocks: Option<usize>,
    /// How similar each layer of --from is to a small network's, for auto-lg
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub similarity: Option<Vec<f64>>,
    /// Take image size, patch, channels, classes and normalisation from this model or template
    /// directory; the model that methods such as weight-selection take weights from
    #[arg(long, value_name = "DIR")]
    pub from: Option<String>,
    /// Take image size, channels, classes and normalisation from this data; of a sequence network,
    /// the vocabulary from this task
    #[arg(long, value_name = "D")]
    pub data: Option<String>,
    /// Seed of everything random [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub sequence: Sequence,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub output: Output,
}

/// Keys of `wave finetune`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Finetune {
    /// Also distil from this frozen model directory
    #[arg(long, value_name = "A")]
    pub ancestor: Option<String>,
    /// Weight of the divergence from the ancestor [default: 1]
    #[arg(long, value_name = "X")]
    pub kl_weight: Option<f64>,
    /// Temperature of the distillation [default: 1]
    #[arg(long, value_name = "X")]
    pub temperature: Option<f64>,
    /// Start a new head, for other classes than the model's [default: false]
    #[arg(long, value_name = "BOOL")]
    pub new_head: Option<bool>,
    /// Leave the weights alone whose names hold one of these, such as .fn.0.weight or .conv_dw.weight,
    /// the filters of a ConvMixer or a ConvNeXt; a transformer's have no layer number: blocks.attn.qkv.weight
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub freeze: Option<Vec<String>>,
    /// Train slices, of which `wave init nested` makes models: each step draws a depth between these
    /// two numbers, and trains evenly spaced layers
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub depths: Option<Vec<usize>>,
    /// Train slices: each step draws one of these widths, and trains the first heads and channels
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub widths: Option<Vec<usize>>,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub output: Output,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub training: Training,
}

impl Training {
    /// How long to train; `default` if neither epochs nor steps are given.
    pub fn duration(&self, default: Duration) -> Result<Duration> {
        match (self.epochs, self.steps) {
            (Some(epochs), Some(steps)) => Err(request(format!(
                "both epochs = {epochs} and steps = {steps} are given; keep one"
            ))),
            (Some(epochs), None) => Ok(Duration::Epochs(epochs)),
            (None, Some(steps)) => Ok(Duration::Steps(steps)),
            (None, None) => Ok(default),
        }
    }

    /// Checks every value that has a range.
    pub fn validate(&self) -> Result<()> {
        check(self)
    }
}
