//! Layouts of model directories: the `format` and `dtype` of every stage that writes one.

use anyhow::Result;
use wave_hub::FloatType;
use wave_models::vit::LAYER_NORM_EPS;
use wave_models::{Network, refuse, transformers};
pub use wave_run::settings::Format;
use wave_run::settings::{Output, OutputValues};

/// The element type that `dtype` names.
pub fn float(dtype: Option<&str>) -> Result<FloatType> {
    match dtype {
        None | Some("f32") => Ok(FloatType::F32),
        Some("f16") => Ok(FloatType::F16),
        Some("bf16") => Ok(FloatType::Bf16),
        Some(name) => refuse!("dtype = {name}; expected f32, f16 or bf16"),
    }
}

/// Format and element type of a model directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// File layout and names of the weights.
    pub format: Format,
    /// Element type of the weights. Scalers are always f32.
    pub float: FloatType,
}

/// ONNX files are limited to 2 GiB, including the graph.
const MOST_ONNX_BYTES: usize = 2_140_000_000;

impl Layout {
    /// The layout given in the settings.
    pub fn new(output: &Output) -> Result<Layout> {
        let OutputValues { format, dtype } = output.clone().into();
        let float = float(dtype.as_deref())?;
        Ok(Layout { format, float })
    }

    /// [`Layout::new`], if it can hold the network. Called before any work, so that none is wasted.
    pub fn of(output: &Output, network: &Network) -> Result<Layout> {
        let layout = Layout::new(output)?;
        let why = match (layout.format, network) {
            (Format::Timm, Network::Vit(shape)) if shape.norm_eps > LAYER_NORM_EPS => {
                refuse!(
                    "format = timm: this network's layer norms have eps {:e}, but timm's have \
                     {LAYER_NORM_EPS:e}, and its model_args cannot change it; write another layout \
                     (--format transformers, or --format onnx)",
                    shape.norm_eps
                );
            }
            (Format::Timm, _) => return Ok(layout),
            (_, Network::Vit(shape)) if shape.classes == 0 => {
                "a model without a classifier does not fit this layout".to_owned()
            }
            (Format::Transformers, Network::Vit(shape)) => {
                transformers::expressible(shape)?;
                return Ok(layout);
            }
            (Format::Onnx, Network::Vit(shape)) if shape.distilled => {
                "the exported graph has no distillation token".to_owned()
            }
            (Format::Onnx, Network::Vit(shape)) => {
                let bytes = shape.parameter_count() * layout.float.bytes();
                if bytes <= MOST_ONNX_BYTES {
                    return Ok(layout);
                }
                format!("{bytes} bytes of weights exceed its limit of 2 GiB")
            }
            (Format::Transformers, other) => format!("its native ViT is not {}", other.family()),
            (Format::Onnx, other) => {
                let family = other.family();
                format!("only vision transformers are exported, not {family}")
            }
        };
        refuse!(
            "format = {}: {why}; write timm's layout (--format timm)",
            layout.format
        )
    }
}
