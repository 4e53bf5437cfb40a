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
    /// Write heat maps to this directory
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Write one HTML page: pictures, parameters and training curves
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also draw attention maps of a vision transformer, averaged over heads and 64 test images from this data
    #[arg(long, value_name = "D")]
    pub data: Option<String>,
}

keys! {
    /// Keys of every stage that writes a model.
    #[command(next_help_heading = "Output")]
    Output => OutputValues {
        /// Layout of the model directory: timm; transformers (native ViT, needs a class token); or onnx (timm's, plus a
        /// graph in model.onnx) [default: timm]
        format<LAYOUT>: Format = Format::Timm;
        /// Data type of the stored weights [default: f32]
        #[arg(value_parser = ["f32", "f16", "bf16"])]
        dtype<TYPE>: String;
    }
}

keys! {
    /// Keys of `wave condense`.
    Condense => CondenseValues {
        /// Pretrained model to distil: a model directory; CLIP and SigLIP also need --labels
        ancestor<A>: String;
        /// Time budget in minutes, including tests; unset settings are planned from speeds measured on this machine
        /// [default without a recipe: 60]
        minutes<N>: f64, 0.01..=1e6;
        /// Smallest and largest model in the --minutes plan, as layers x width [default: 2x64..12x192]
        sizes<SIZES>: ModelSizes;
        /// Template set to extend to larger models. It keeps its existing models, auxiliary and template size
        grow<TEMPLATES>: String;
        /// Depths of the auxiliary: one number for plain WAVE; minimum and maximum for an elastic condensation, which
        /// samples a depth per step
        depths<N ','>: Vec<usize>, 1.0..=10_000.0;
        /// Widths of the auxiliary; each step samples one
        widths<N ','>: Vec<usize>, 1.0..=1e6;
        /// Trained parameters: weights (composed weights, projected onto the templates after each step); or factors
        /// (templates and scalers, as in the paper) [default: weights; factors if another key requires it]
        train<WHAT>: Trained;
        /// Number of rows and columns of a template [default: the auxiliary's smallest width]
        template_size<T>: usize, 1.0..=65_536.0;
        /// Number of templates for qkv, proj, fc1 and fc2 [default: as many values as in 24 templates of the auxiliary's
        /// smallest width; with --grow, as many more as in 24 of the largest width]
        templates<N ','>: Vec<usize>, 1.0..=1e6;
        /// Share one set of templates between fc1 and fc2 [default: false]
        share_mlp<BOOL>: bool = false;
        /// Data type of the template directory [default: f32]
        #[arg(value_parser = ["f32", "f16", "bf16"])]
        dtype<TYPE>: String;
        /// Order of the Kronecker product [default: tile]
        #[arg(value_parser = ["tile", "interleave"])]
        kronecker<ORDER>: String = "tile".to_owned();
        /// Number of scaler anchors over the depth [default: the auxiliary's depth]
        anchors<K>: usize, 1.0..=10_000.0;
        /// Template initialiser: mimetic (attention products as in trained networks, sinusoidal position embedding);
        /// xavier (independent random weights); or ancestor (the ancestor's own weights, if it is a ViT of the
        /// auxiliary's shape) [default: mimetic]
        template_start<START>: TemplateStart = TemplateStart::Mimetic;
        /// Scaler initialiser: ramp, telg (a base and a slope), share (one block for all layers) or random.
        /// --scaler-lr-ratio 0 freezes the scalers: telg with 2 anchors is then TLEG (layer l of L is B + (l/L) A),
        /// share with 1 anchor is Share Init [default: ramp]
        scaler_start<START>: ScalerStart = ScalerStart::Ramp;
        /// Distillation target: scores (class probabilities); or features (the classifier's input, through a linear map
        /// dropped afterwards), for backbone templates without classifier or labels [default: scores; features if the
        /// ancestor has no classifier]
        ancestor_output<WHAT>: AncestorOutput;
        /// Weight of the KL divergence from the ancestor [default: 1]
        kl_weight<X>: f64 = 1.0, 0.0..=1e6;
        /// Weight of the cross-entropy with the labels. 0 needs no labels: --data may be any directory of images, the
        /// classes are the ancestor's, and only data with as many classes is tested [default: 1]
        ce_weight<X>: f64 = 1.0, 0.0..=1e6;
        /// Distillation temperature [default: 1]
        temperature<X>: f64 = 1.0, 0.01..=1000.0;
        /// Learning rate of the scalers, relative to --lr [default: 1]
        scaler_lr_ratio<X>: f64, 0.0..=1000.0;
        /// Successive condensations, each with its changes to these keys. Each one grows the previous templates.
        #[arg(skip)]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        levels: Vec<Table>;
    } table {
        /// The auxiliary's largest shape
        auxiliary: Auxiliary
    } with {
        outputs: Outputs => OutputsValues,
        elastic: Elastic => ElasticValues,
        variants: Variants => VariantsValues,
        zero_shot: ZeroShot => ZeroShot,
        training: Training => TrainingValues,
    }
}

keys! {
    /// The auxiliary's shape, `[condense.auxiliary]`.
    Auxiliary => AuxiliaryValues {
        /// Number of blocks.
        depth: usize;
        /// Channels per token.
        width: usize;
        /// Channels per head.
        head_width: usize;
        /// Patch size in pixels.
        patch: usize;
        /// Image size in pixels.
        image_size: usize;
        /// MLP ratio: hidden channels / width.
        mlp_ratio: f64, 0.001..=1000.0;
        /// True to use a class token instead of mean pooling.
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
        /// Number of blocks
        depth<N>: usize;
        /// Channels per token; a multiple of the templates' head width
        width<N>: usize;
        /// Number of attention heads [default: width / the templates' head width]
        heads<N>: usize;
        /// MLP ratio: hidden channels / width [default: the templates']
        mlp_ratio<X>: f64, 0.001..=1000.0;
        /// Image size in pixels; the position embedding is resized to match [default: the templates']
        image_size<N>: usize;
        /// Patch size in pixels; patch and position embeddings are resized to match [default: the templates']
        patch<N>: usize;
        /// Parameter budget instead of a size, such as 8M: makes the most accurate model within it, by the accuracies
        /// recorded with the templates
        max_params<N>: String;
        /// Budget of multiply-adds (MACs) per image instead of a size, such as 1.2G: makes the most accurate model
        /// within it
        #[arg(alias = "max-flops")]
        max_macs<N>: String;
        /// Latency limit for one image, measured on this machine, instead of a size: makes the most accurate model
        /// within it
        max_latency_ms<MS>: f64, 1e-9..=1e9;
        /// Number of templates to use from a set with levels: the number in one of its levels [default: the first level
        /// that covers the size]
        templates_used<N>: usize;
        /// Delta to apply first, made from these templates by `wave adapt`: a directory or hf:OWNER/NAME
        delta<DELTA>: String;
        /// Scaler initialiser: bank (interpolated) or random (as described in the WAVE paper) [default: bank]
        scalers<START>: FirstScalers = FirstScalers::Bank;
        /// Initialiser of the blocks' norms and biases: inherit (interpolated), mimetic or timm [default: inherit]
        fill<FROM>: Fill = Fill::Inherit;
        /// Learning rate of the head while scalers are fitted, relative to --lr; 0 freezes the head [default: 0.1]
        head_lr_ratio<X>: f64 = 0.1, 0.0..=1000.0;
    } with {
        output: Output => Output,
        training: Training => TrainingValues,
    }
}

keys! {
    /// Keys of `wave adapt`.
    Adapt => AdaptValues {
        /// Minimum and maximum depth to sample at each step; one number sets both [default: the condensed depths]
        depths<N ','>: Vec<usize>, 1.0..=10_000.0;
        /// Widths to sample from at each step [default: the condensed widths]
        widths<N ','>: Vec<usize>, 1.0..=1e6;
        /// Number of anchors of the delta over the depth; more anchors fit better in a larger file [default: 2; with
        /// --whole true the templates']
        anchors<K>: usize, 1.0..=10_000.0;
        /// Weights to train besides scalers and classifier, by parts of their names, such as norm, bias, patch_embed or
        /// pos_embed [default: norm; with --whole true all]
        adapts<TEXT ','>: Vec<String>;
        /// Rank of the template updates in the delta; 0 freezes the templates [default: 1; with --whole true 0]
        template_rank<R>: usize, 0.0..=65_536.0;
        /// Write a whole template directory with adapted templates instead of a delta [default: false]
        whole<BOOL>: bool = false;
        /// Learning rate of the scalers, relative to --lr [default: 1]
        scaler_lr_ratio<X>: f64 = 1.0, 0.0..=1000.0;
        /// Data type of the output [default: f16; with --whole true f32]
        #[arg(value_parser = ["f32", "f16", "bf16"])]
        dtype<TYPE>: String;
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
        arch<A>: Architecture = Architecture::Vit;
        /// Number of blocks [default: the sum of --stages]
        depth<N>: usize;
        /// Channels per token
        width<N>: usize;
        /// Number of attention heads [default: width / 64, or width / the head width of --from; for prune the number of
        /// --from, or the next lower one that divides the width]
        heads<N>: usize;
        /// MLP ratio: hidden channels / width [default: 4, or the ratio of --from]
        mlp_ratio<X>: f64, 0.001..=1000.0;
        /// Patch size in pixels [default: 16 (7 for convmixer and convnext) if it divides the image into at least 4 x 4
        /// patches; else 7, 4 or the largest up to 16 that does]
        patch<N>: usize;
        /// Image size in pixels [default: the size of the --data images if all have the same, at most 224; else 224]
        image_size<N>: usize;
        /// Number of colour channels
        channels<N>: usize;
        /// Number of classes
        classes<N>: usize;
        /// Kernel size of the depthwise convolutions (convmixer, convnext)
        kernel<N>: usize;
        /// Activation function of a convmixer [default: gelu]
        activation<NAME>: MixerActivation;
        /// Number of blocks in each of a convnext's four stages, such as 2,2,6,2. Each later stage halves the
        /// resolution and doubles the width; --width is for the first [default: one stage, isotropic]
        stages<N ','>: Vec<usize>;
        /// Dilation of the depthwise convolutions (convmixer): one digit for all layers, one digit per layer
        /// (11223333), or a schedule A to H from the thesis [default: 1]
        dilation<D>: String;
        /// Variance of the Gaussian bump in `covariance` filters, in pixels²: value at the first layer, velocity and
        /// acceleration over depth [default: 0.08,0.37,2.9]
        filter_variance<X ','>: Vec<f64>;
        /// Halve --filter-variance each time the resolution halves (convnext with --stages) [default: false]
        sawtooth<BOOL>: bool;
        /// Replace each filter covariance with the nearest Kronecker square [default: false]
        factored<BOOL>: bool = false;
        /// Use a class token instead of mean pooling
        class_token<BOOL>: bool;
        /// Position embedding [default: sinusoidal for mimetic]
        positions<KIND>: PositionKind;
        /// Scale of a sinusoidal position embedding [default: 2 for images of up to 64 pixels, else 1]
        position_scale<X>: f64;
        /// Mean shift of the MLP's first layer: none; eq1=SIGMA, a normal random number per input; or eq2=B, one number
        /// for all. Baselines from the papers: bias=B, a constant bias; or half, (W1 - W2^T)/2. SIGMA and B are
        /// multiples of the standard deviation of the layer's weights [default: none; for mlp-mean eq2=0.5]
        mlp_mean<SHIFT>: String;
        /// Mixing factors of mimetic queries and keys: alpha,beta in W_Q W_K^T = alpha Z + beta I; 0,0 uses --rest
        /// instead [default: 0.7,0.7]
        #[arg(allow_hyphen_values = true)]
        qk<X ','>: Vec<f64>;
        /// Mixing factors of mimetic values and projection: alpha,beta in W_V W_proj = alpha Z - beta I; 0,0 uses
        /// --rest instead [default: 0.4,0.4]
        #[arg(allow_hyphen_values = true)]
        vp<X ','>: Vec<f64>;
        /// Mimetic attention: products (factors of products near the identity and its negative); or equal (one random
        /// matrix for queries and keys; another for values and, negated, for the projection) [default: products]
        mimetic<WHAT>: String;
        /// Factor gamma of layerscale, 0 to 1 [default: 0.1]
        gamma<X>: f64, 0.0..=1.0;
        /// Matrices that zero initialises: query-key, attention (also values and projection), or blocks (all matrices
        /// of a block) [default: attention]
        zero<WHAT>: String;
        /// Path of a residual block that layerscale scales [default: branch]
        scaled<WHAT>: Scaled;
        /// Initialiser of the weights that the method does not set: he, timm, xavier or mimetic; for mimetic and
        /// layerscale timm or xavier [default: timm]
        rest<METHOD>: String;
        /// Layers to take from a deeper --from: first or uniform (evenly spaced) [default: first]
        layers<WHICH>: String;
        /// Number of blocks that heru-lg and auto-lg take from --from [default: 3 and 4]
        blocks<N>: usize;
        /// Similarity of each layer of --from to the layers of a small network, for auto-lg
        #[arg(allow_hyphen_values = true)]
        similarity<X ','>: Vec<f64>;
        /// Model directory that sets image size, patch size, channels, classes and normalisation; the donor
        /// for methods such as weight-selection
        from<DIR>: String;
        /// Data that sets image size, channels, classes and normalisation; for prune, calibration images, which need no
        /// labels
        data<D>: String;
        /// Number of calibration images for prune: the first N of a seeded shuffle of --data [default: 500]
        train_limit<N>: usize, 1.0..=1e12;
        /// Random seed [default: 0]
        seed<N>: u64 = 0;
    } with {
        output: Output => Output,
    }
}

keys! {
    /// Keys of `wave finetune`.
    Finetune => FinetuneValues {
        /// Ancestor to also distil from: a model directory; CLIP and SigLIP need --labels
        ancestor<A>: String;
        /// Weight of the KL divergence from the ancestor [default: 1]
        kl_weight<X>: f64 = 1.0, 0.0..=1e6;
        /// Distillation temperature [default: 1]
        temperature<X>: f64 = 1.0, 0.01..=1000.0;
        /// Replace the classifier, for classes other than the model's [default: false]
        new_head<BOOL>: bool = false;
        /// Freeze weights whose names contain one of these strings, such as .fn.0.weight or .conv_dw.weight, the
        /// filters of ConvMixer and ConvNeXt. The names of a transformer have no layer number: blocks.attn.qkv.weight
        freeze<TEXT ','>: Vec<String> = Vec::new();
        /// LayerScale: train a factor per channel of every residual branch of a transformer, starting at X (0.1 for few
        /// layers, down to 1e-6 for many). The factors are merged into the weights at the end
        layer_scale<X>: f64, 0.0..=1.0;
        /// Train a scalar per transformer layer, starting at X and added to the MLP's first matrix: a baseline for
        /// mimetic MLPs (thesis, section 3.4.2)
        #[arg(allow_negative_numbers = true)]
        mlp_scalar<X>: f64, -1000.0..=1000.0;
        /// Train slices for `wave init nested`: each step samples a depth between these two numbers and trains evenly spaced
        /// layers
        depths<N ','>: Vec<usize>, 1.0..=10_000.0;
        /// Train slices: each step samples one of these widths and trains the first heads and channels
        widths<N ','>: Vec<usize>, 1.0..=1e6;
    } with {
        outputs: Outputs => OutputsValues,
        elastic: Elastic => ElasticValues,
        zero_shot: ZeroShot => ZeroShot,
        output: Output => Output,
        training: Training => TrainingValues,
    }
}

keys! {
    /// Keys of `wave eval`: test examples and metrics.
    Eval => EvalValues {
        /// Number of attention heads of a transformer whose config.json lacks it
        heads<N>: usize;
        /// Images, as for `wave finetune`
        data<D>: String;
        /// Test on the first N images of a seeded shuffle [default: all]
        test_limit<N>: usize, 1.0..=1e12;
        /// Test on the N held-out images of `wave finetune --hold-out N`
        hold_out<N>: usize, 1.0..=1e12;
        /// Evaluate features instead of class scores: accuracy of N nearest neighbours (20 is usual) and of a linear
        /// probe. The model needs no classifier
        knn<N>: usize;
        /// With --knn: use at most N training images [default: all]
        train_limit<N>: usize;
        /// Random seed of the shuffle [default: 0]
        seed<N>: u64 = 0;
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
        mode<MODE>: SpeedMode = SpeedMode::Train;
        /// Image size in pixels [default: 224]
        image<N>: usize = 224;
        /// Number of colour channels [default: 3]
        channels<N>: usize = 3;
        /// Patch size in pixels [default: 16]
        patch<N>: usize = 16;
        /// Number of blocks [default: 12]
        depth<N>: usize = 12;
        /// Channels per token [default: 192]
        width<N>: usize = 192;
        /// Number of attention heads [default: width / 64]
        heads<N>: usize;
        /// MLP ratio: hidden channels / width [default: 4]
        mlp_ratio<X>: f64 = 4.0;
        /// Number of classes [default: 1000]
        classes<N>: usize = 1000;
        /// Use a class token instead of mean pooling [default: true]
        class_token<BOOL>: bool = true;
        /// Batch size [default: 16]
        batch<N>: usize = 16;
        /// Number of steps to measure [default: 10]
        steps<N>: usize = 10;
        /// Also measure the processor's peak multiply-add rate, and the fraction of it that the workload reaches
        /// [default: false]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        peak<BOOL>: bool = false;
        /// Precision of the blocks' matrix products [default: f32]
        precision<P>: PrecisionChoice = PrecisionChoice::F32;
        /// Activation checkpointing: recompute a block's activations in the backward pass [default: false]
        recompute<BOOL>: bool = false;
    }
}
