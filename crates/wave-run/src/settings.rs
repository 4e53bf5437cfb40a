//! The keys of each stage, declared once: they are its flags and its recipe table.
#![allow(
    missing_docs,
    reason = "clap would print it as the description of a command"
)]

use clap::Args;
use std::path::PathBuf;
use toml::Table;
use wave_models::vit::VitShape;

#[macro_use]
mod keys;
mod choices;
mod ranges;
mod training;
mod values;

pub use choices::*;
pub use keys::Range;
pub use ranges::{check, check_table, ranges, to_table};
pub use training::*;
pub use values::*;

/// Pictures of `wave inspect`.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Pictures {
    /// Draw heat maps into this directory
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Write one HTML page: pictures, parameters and training curves
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also draw attention maps of a vision transformer, averaged over heads and 64 test images of this data
    #[arg(long, value_name = "D")]
    pub data: Option<String>,
}

keys! {
    /// Keys of every stage that writes a model.
    #[command(next_help_heading = "Output")]
    Output => OutputValues {
        /// Layout of the model directory: timm; transformers (native ViT, needs a class token); or onnx
        /// (timm's, with a graph in model.onnx) [default: timm]
        #[arg(long, value_name = "LAYOUT")]
        format: Format = Format::Timm;
        /// Number format of the stored weights [default: f32]
        #[arg(long, value_name = "TYPE", value_parser = ["f32", "f16", "bf16"])]
        dtype: String;
    }
}

keys! {
    /// Keys of `wave condense`.
    Condense => CondenseValues {
        /// Frozen model to distil: a model directory; CLIP and SigLIP also need --labels
        #[arg(long, value_name = "A")]
        ancestor: String;
        /// Time budget in minutes, tests included: settings not given are planned for it by rates measured on this machine
        /// [default without a recipe: 60]
        #[arg(long, value_name = "N")]
        minutes: f64, 0.01..=1e6;
        /// Smallest and largest model of the --minutes plan, as layers x width [default: 2x64..12x192]
        #[arg(long, value_name = "SIZES")]
        sizes: ModelSizes;
        /// Extend a template set to larger models; existing sizes are unchanged. Auxiliary and template size stay those of
        /// the set
        #[arg(long, value_name = "TEMPLATES")]
        grow: String;
        /// Depths of the auxiliary: one number for plain WAVE; least and most for an elastic condensation, which samples
        /// one per step
        #[arg(long, value_name = "N", value_delimiter = ',')]
        depths: Vec<usize>, 1.0..=10_000.0;
        /// Widths of the auxiliary; each step samples one
        #[arg(long, value_name = "N", value_delimiter = ',')]
        widths: Vec<usize>, 1.0..=1e6;
        /// Trained parameters: weights (composed weights, projected onto templates after each step); or factors (templates
        /// and scalers, as in the paper) [default: weights; factors with a key that weights do not allow]
        #[arg(long, value_name = "WHAT")]
        train: Trained;
        /// Rows and columns of a template [default: the auxiliary's narrowest width]
        #[arg(long, value_name = "T")]
        template_size: usize, 1.0..=65_536.0;
        /// Number of templates of qkv, proj, fc1 and fc2 [default: 24 of the auxiliary's narrowest width, or as many values
        /// in smaller ones; with --grow as many more of the widest]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        templates: Vec<usize>, 1.0..=1e6;
        /// Share one set of templates between fc1 and fc2 [default: false]
        #[arg(long, value_name = "BOOL")]
        share_mlp: bool = false;
        /// Number format of the template directory [default: f32]
        #[arg(long, value_name = "TYPE", value_parser = ["f32", "f16", "bf16"])]
        dtype: String;
        /// Order of the Kronecker product [default: tile]
        #[arg(long, value_name = "ORDER", value_parser = ["tile", "interleave"])]
        kronecker: String = "tile".to_owned();
        /// Scaler anchors over the depth [default: the auxiliary's depth]
        #[arg(long, value_name = "K")]
        anchors: usize, 1.0..=10_000.0;
        /// Template initialiser: mimetic (attention products like a trained network's, sinusoidal positions); or xavier
        /// (independent numbers) [default: mimetic]
        #[arg(long, value_name = "START")]
        template_start: TemplateStart = TemplateStart::Mimetic;
        /// Scaler initialiser: ramp, telg (a base and a slope), share (one block for all layers) or random. Frozen by
        /// --scaler-lr-ratio 0: telg with 2 anchors is then TLEG (layer l of L is B + (l/L) A), share with 1 is Share Init
        /// [default: ramp]
        #[arg(long, value_name = "START")]
        scaler_start: ScalerStart = ScalerStart::Ramp;
        /// Distillation target: scores (class probabilities); or features (the classifier's input, through a linear map
        /// dropped afterwards), which gives templates of backbones without classifier and labels [default: scores; features
        /// of an ancestor without a classifier]
        #[arg(long, value_name = "WHAT")]
        ancestor_output: AncestorOutput;
        /// Weight of the KL divergence from the ancestor [default: 1]
        #[arg(long, value_name = "X")]
        kl_weight: f64 = 1.0, 0.0..=1e6;
        /// Weight of the cross-entropy with the labels. 0 needs no labels: --data may be any directory of images, classes
        /// are the ancestor's, without tests [default: 1]
        #[arg(long, value_name = "X")]
        ce_weight: f64 = 1.0, 0.0..=1e6;
        /// Distillation temperature [default: 1]
        #[arg(long, value_name = "X")]
        temperature: f64 = 1.0, 0.01..=1000.0;
        /// Learning rate of the scalers, relative to --lr [default: 1]
        #[arg(long, value_name = "X")]
        scaler_lr_ratio: f64, 0.0..=1000.0;
        /// Condensations one after another, each with its changes to these keys; each grows the templates of the one
        /// before.
        #[arg(skip)]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        levels: Vec<Table>;
    } table {
        /// The auxiliary's largest shape
        auxiliary: Auxiliary
    } with {
        outputs: Outputs => Outputs,
        elastic: Elastic => ElasticValues,
        variants: Variants => VariantsValues,
        zero_shot: ZeroShot => ZeroShot,
        training: Training => TrainingValues,
    }
}

keys! {
    /// The auxiliary's shape, `[condense.auxiliary]`.
    Auxiliary => AuxiliaryValues {
        /// Blocks.
        depth: usize;
        /// Channels of a token.
        width: usize;
        /// Channels of a head.
        head_width: usize;
        /// Side of a patch in pixels.
        patch: usize;
        /// Side of the image in pixels.
        image_size: usize;
        /// Hidden channels of the MLP over the width.
        mlp_ratio: f64, 0.001..=1000.0;
        /// A class token is classified instead of the mean token.
        class_token: bool;
    }
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

keys! {
    /// Keys of `wave expand`.
    Expand => ExpandValues {
        /// Blocks of the model
        #[arg(long, value_name = "N")]
        depth: usize;
        /// Channels of a token; a multiple of the templates' head width
        #[arg(long, value_name = "N")]
        width: usize;
        /// Attention heads [default: width / the templates' head width]
        #[arg(long, value_name = "N")]
        heads: usize;
        /// Hidden channels of the MLP over the width [default: the templates']
        #[arg(long, value_name = "X")]
        mlp_ratio: f64, 0.001..=1000.0;
        /// Side of an image in pixels: positions are resized [default: the templates']
        #[arg(long, value_name = "N")]
        image_size: usize;
        /// Side of a patch in pixels: patch embeddings and positions are resized [default: the
        /// templates']
        #[arg(long, value_name = "N")]
        patch: usize;
        /// Instead of a size: the most accurate within a parameter budget, such as 8M, by the accuracies recorded with
        /// the templates
        #[arg(long, value_name = "N")]
        max_params: String;
        /// Instead of a size: the most accurate within a budget of multiply-adds (MACs) per image, such as 1.2G
        #[arg(long, value_name = "N", alias = "max-flops")]
        max_macs: String;
        /// Instead of a size: the most accurate within a latency for one image, measured on this machine
        #[arg(long, value_name = "MS")]
        max_latency_ms: f64, 1e-9..=1e9;
        /// Templates used, of a set with levels: the number of one of its levels [default: that of the first level that
        /// holds the size]
        #[arg(long, value_name = "N")]
        templates_used: usize;
        /// Delta to apply first, made by `wave adapt` from these templates: a directory or hf:OWNER/NAME
        #[arg(long, value_name = "DELTA")]
        delta: String;
        /// Scaler initialiser: bank (interpolated) or random (the WAVE paper's wording) [default: bank]
        #[arg(long, value_name = "START")]
        scalers: FirstScalers = FirstScalers::Bank;
        /// Initialiser of the blocks' norms and biases: inherit (interpolated), mimetic or timm [default: inherit]
        #[arg(long, value_name = "FROM")]
        fill: Fill = Fill::Inherit;
        /// Learning rate of the head while scalers are fitted, relative to --lr; 0 freezes it [default: 0.1]
        #[arg(long, value_name = "X")]
        head_lr_ratio: f64 = 0.1, 0.0..=1000.0;
    } with {
        output: Output => Output,
        training: Training => TrainingValues,
    }
}

keys! {
    /// Keys of `wave adapt`.
    Adapt => AdaptValues {
        /// Least and greatest depth that a step samples; one number for both [default: those condensed]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        depths: Vec<usize>, 1.0..=10_000.0;
        /// Widths that a step samples from [default: those condensed]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        widths: Vec<usize>, 1.0..=1e6;
        /// Anchors of the delta over the depth: more fit better, in a larger file [default: 2; with --whole true those of
        /// the templates]
        #[arg(long, value_name = "K")]
        anchors: usize, 1.0..=10_000.0;
        /// Weights trained beside scalers and classifier, by parts of their names, such as norm, bias, patch_embed or
        /// pos_embed [default: norm; with --whole true all]
        #[arg(long, value_name = "TEXT", value_delimiter = ',')]
        adapts: Vec<String>;
        /// Rank of the template differences in the delta; 0 freezes the templates [default: 1; with --whole true 0]
        #[arg(long, value_name = "R")]
        template_rank: usize, 0.0..=65_536.0;
        /// Write adapted templates, a whole template directory, instead of a delta [default: false]
        #[arg(long, value_name = "BOOL")]
        whole: bool = false;
        /// Learning rate of the scalers, relative to --lr [default: 1]
        #[arg(long, value_name = "X")]
        scaler_lr_ratio: f64 = 1.0, 0.0..=1000.0;
        /// Number format of the output [default: f16; with --whole true f32]
        #[arg(long, value_name = "TYPE", value_parser = ["f32", "f16", "bf16"])]
        dtype: String;
    } with {
        elastic: Elastic => ElasticValues,
        variants: Variants => VariantsValues,
        training: Training => TrainingValues,
    }
}

keys! {
    /// Keys of `wave init`.
    Init => InitValues {
        /// Architecture: vit, convmixer or convnext [default: vit]
        #[arg(long, value_name = "A")]
        arch: String = "vit".to_owned();
        /// Blocks [default: the sum of --stages]
        #[arg(long, value_name = "N")]
        depth: usize;
        /// Channels of a token
        #[arg(long, value_name = "N")]
        width: usize;
        /// Attention heads [default: width / 64, or width / the head width of --from; for prune those of --from, if they
        /// divide the width]
        #[arg(long, value_name = "N")]
        heads: usize;
        /// Hidden channels of the MLP over the width [default: 4, or that of --from]
        #[arg(long, value_name = "X")]
        mlp_ratio: f64, 0.001..=1000.0;
        /// Side of a patch in pixels [default: 16, or 7 for convmixer and convnext, if that divides the image into at least
        /// 4 x 4; else 7, 4 or the largest up to 16 that does]
        #[arg(long, value_name = "N")]
        patch: usize;
        /// Side of the image in pixels [default: that of the --data images, if all have one size of at most 224; else 224]
        #[arg(long, value_name = "N")]
        image_size: usize;
        /// Colour channels
        #[arg(long, value_name = "N")]
        channels: usize;
        /// Classes
        #[arg(long, value_name = "N")]
        classes: usize;
        /// Side of a depthwise kernel (convmixer, convnext)
        #[arg(long, value_name = "N")]
        kernel: usize;
        /// Activation of a convmixer [default: gelu]
        #[arg(long, value_name = "NAME")]
        activation: MixerActivation;
        /// Blocks of each of a convnext's four stages, such as 2,2,6,2. Each stage halves the resolution and doubles the
        /// width; --width is the first's [default: one stage, isotropic]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        stages: Vec<usize>;
        /// Dilation of depthwise kernels (convmixer): a digit for all layers, one per layer (11223333), or a schedule A to H
        /// of the thesis [default: 1]
        #[arg(long, value_name = "D")]
        dilation: String;
        /// Variance of the Gaussian bump in `covariance` filters, in pixels²: its start at the first layer, velocity and
        /// acceleration over depth [default: 0.08,0.37,2.9]
        #[arg(long, value_name = "X", value_delimiter = ',')]
        filter_variance: Vec<f64>;
        /// Halve that variance with every halving of the resolution (convnext with --stages) [default: false]
        #[arg(long, value_name = "BOOL")]
        sawtooth: bool;
        /// Treatment of a covariance's negative eigenvalues: clip or absolute [default: clip]
        #[arg(long, value_name = "HOW")]
        negative: String;
        /// Replace covariances of filters by the nearest Kronecker squares [default: false]
        #[arg(long, value_name = "BOOL")]
        factored: bool = false;
        /// Classify a class token instead of the mean token
        #[arg(long, value_name = "BOOL")]
        class_token: bool;
        /// Position embedding [default: sinusoidal for mimetic]
        #[arg(long, value_name = "KIND")]
        positions: PositionKind;
        /// Scale of a sinusoidal position embedding [default: 2 for images of up to 64 pixels, else 1]
        #[arg(long, value_name = "X")]
        position_scale: f64;
        /// Mean shift of the MLP's first layer: none; eq1=SIGMA, a normal number per input; or eq2=B, one for all. Baselines
        /// of the papers: bias=B, a constant bias; or half, (W1 - W2^T)/2. SIGMA and B are in standard deviations of the
        /// layer's weights [default: none; for mlp-mean eq2=0.5]
        #[arg(long, value_name = "SHIFT")]
        mlp_mean: String;
        /// Mimetic queries and keys: alpha,beta of W_Q W_K^T = alpha Z + beta I; 0,0 leaves them to --rest
        /// [default: 0.7,0.7]
        #[arg(
            long,
            value_name = "X",
            value_delimiter = ',',
            allow_negative_numbers = true
        )]
        qk: Vec<f64>;
        /// Mimetic V and projection: alpha,beta of W_V W_proj = alpha Z - beta I; 0,0 leaves them to --rest
        /// [default: 0.4,0.4]
        #[arg(
            long,
            value_name = "X",
            value_delimiter = ',',
            allow_negative_numbers = true
        )]
        vp: Vec<f64>;
        /// Mimetic attention: products (factored, near the identity and its negative); or equal (one random matrix as query
        /// and key, another as value and, negated, projection) [default: products]
        #[arg(long, value_name = "WHAT")]
        mimetic: String;
        /// Layout of mimetic V and projection: paper or code [default: paper]
        #[arg(long, value_name = "LAYOUT")]
        vp_layout: String;
        /// Scale of layerscale, 0 to 1 [default: 0.1]
        #[arg(long, value_name = "X")]
        gamma: f64, 0.0..=1.0;
        /// Weights set to zero: query-key, attention (values and projection too), or blocks (all matrices of a block)
        /// [default: attention]
        #[arg(long, value_name = "WHAT")]
        zero: String;
        /// Target of layerscale [default: branch]
        #[arg(long, value_name = "WHAT")]
        scaled: Scaled;
        /// Initialiser of the weights that a method leaves alone: he, timm, xavier or mimetic; for mimetic and layerscale
        /// timm or xavier [default: timm]
        #[arg(long, value_name = "METHOD")]
        rest: String;
        /// Layers taken from a deeper --from: first or uniform [default: first]
        #[arg(long, value_name = "WHICH")]
        layers: String;
        /// Blocks taken by heru-lg and auto-lg [default: 3 and 4]
        #[arg(long, value_name = "N")]
        blocks: usize;
        /// Similarity of each layer of --from to a small network's, for auto-lg
        #[arg(long, value_name = "X", value_delimiter = ',')]
        similarity: Vec<f64>;
        /// Model or template directory to take image size, patch, channels, classes and normalisation from; the donor of
        /// methods such as weight-selection
        #[arg(long, value_name = "DIR")]
        from: String;
        /// Data to take image size, channels, classes and normalisation from; for prune, calibration images, without labels
        #[arg(long, value_name = "D")]
        data: String;
        /// Calibration images of prune: the first N of a seeded shuffle of --data [default: 500]
        #[arg(long, value_name = "N")]
        train_limit: usize, 1.0..=1e12;
        /// Random seed [default: 0]
        #[arg(long, value_name = "N")]
        seed: u64 = 0;
    } with {
        output: Output => Output,
    }
}

keys! {
    /// Keys of `wave finetune`.
    Finetune => FinetuneValues {
        /// Also distil from this frozen model directory; CLIP and SigLIP need --labels
        #[arg(long, value_name = "A")]
        ancestor: String;
        /// Weight of the KL divergence from the ancestor [default: 1]
        #[arg(long, value_name = "X")]
        kl_weight: f64 = 1.0, 0.0..=1e6;
        /// Temperature of the distillation [default: 1]
        #[arg(long, value_name = "X")]
        temperature: f64 = 1.0, 0.01..=1000.0;
        /// Replace the head, for other classes than the model's [default: false]
        #[arg(long, value_name = "BOOL")]
        new_head: bool = false;
        /// Freeze weights whose names contain one of these, such as .fn.0.weight or .conv_dw.weight, the filters of
        /// ConvMixer and ConvNeXt. Transformers' names have no layer number: blocks.attn.qkv.weight
        #[arg(long, value_name = "TEXT", value_delimiter = ',')]
        freeze: Vec<String> = Vec::new();
        /// LayerScale: train a factor per channel of every residual branch of a transformer, from X (0.1 for few layers,
        /// down to 1e-6 for many). Merged into the weights at the end
        #[arg(long, value_name = "X")]
        layer_scale: f64, 0.0..=1.0;
        /// Train a scalar per transformer layer, from X, added to the MLP's first matrix: a baseline of mimetic MLPs
        /// (thesis, section 3.4.2)
        #[arg(long, value_name = "X", allow_negative_numbers = true)]
        mlp_scalar: f64, -1000.0..=1000.0;
        /// Train slices for `wave init nested`: each step samples a depth between these two numbers and trains evenly spaced
        /// layers
        #[arg(long, value_name = "N", value_delimiter = ',')]
        depths: Vec<usize>, 1.0..=10_000.0;
        /// Train slices: each step samples one of these widths and trains the first heads and channels
        #[arg(long, value_name = "N", value_delimiter = ',')]
        widths: Vec<usize>, 1.0..=1e6;
    } with {
        outputs: Outputs => Outputs,
        elastic: Elastic => ElasticValues,
        zero_shot: ZeroShot => ZeroShot,
        output: Output => Output,
        training: Training => TrainingValues,
    }
}

keys! {
    /// Keys of `wave eval`: test examples and metrics.
    Eval => EvalValues {
        /// Attention heads of a transformer whose config.json lacks them
        #[arg(long, value_name = "N")]
        heads: usize;
        /// Images, or a task of a sequence network, as for `wave finetune` [default for sequence networks and
        /// populations: their training data]
        #[arg(long, value_name = "D")]
        data: String;
        /// Test on the first N images of a seeded shuffle [default: all]
        #[arg(long, value_name = "N")]
        test_limit: usize;
        /// Test on the N training images that `wave finetune --hold-out N` keeps apart
        #[arg(long, value_name = "N")]
        hold_out: usize;
        /// Evaluate features instead of class scores: accuracy of the N nearest training images (20 is usual), and of
        /// a linear probe. Needs no classifier
        #[arg(long, value_name = "N")]
        knn: usize;
        /// With --knn: at most N training images [default: all]
        #[arg(long, value_name = "N")]
        train_limit: usize;
        /// Seed of the shuffle [default: 0]
        #[arg(long, value_name = "N")]
        seed: u64 = 0;
    } with {
        zero_shot: ZeroShot => ZeroShot,
    }
}

impl Eval {
    /// The test images.
    pub fn images(&self) -> Images {
        Images {
            data: self.data.clone(),
            train_limit: self.train_limit,
            test_limit: self.test_limit,
            hold_out: self.hold_out,
            ..Images::default()
        }
    }
}

keys! {
    /// Keys of `wave speed`.
    Speed => SpeedValues {
        /// Workload [default: train]
        #[arg(long, value_name = "MODE")]
        mode: SpeedMode = SpeedMode::Train;
        /// Side of the image in pixels [default: 224]
        #[arg(long, value_name = "N")]
        image: usize = 224;
        /// Colour channels [default: 3]
        #[arg(long, value_name = "N")]
        channels: usize = 3;
        /// Side of a patch in pixels [default: 16]
        #[arg(long, value_name = "N")]
        patch: usize = 16;
        /// Blocks [default: 12]
        #[arg(long, value_name = "N")]
        depth: usize = 12;
        /// Channels of a token [default: 192]
        #[arg(long, value_name = "N")]
        width: usize = 192;
        /// Attention heads [default: width / 64]
        #[arg(long, value_name = "N")]
        heads: usize;
        /// Hidden channels of the MLP over the width [default: 4]
        #[arg(long, value_name = "X")]
        mlp_ratio: f64 = 4.0;
        /// Classes [default: 1000]
        #[arg(long, value_name = "N")]
        classes: usize = 1000;
        /// Classify a class token instead of the mean token [default: true]
        #[arg(long, value_name = "BOOL")]
        class_token: bool = true;
        /// Images in a step [default: 16]
        #[arg(long, value_name = "N")]
        batch: usize = 16;
        /// Steps to measure [default: 10]
        #[arg(long, value_name = "N")]
        steps: usize = 10;
        /// Also measure the processor's peak rate of multiply-adds, and the fraction that the workload reaches [default: false]
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        peak: bool = false;
        /// Precision of the blocks' matrix products [default: f32]
        #[arg(long, value_name = "P")]
        precision: PrecisionChoice = PrecisionChoice::F32;
        /// Activation checkpointing: compute a block's activations again in the backward pass
        /// [default: false]
        #[arg(long, value_name = "BOOL")]
        recompute: bool = false;
    }
}
