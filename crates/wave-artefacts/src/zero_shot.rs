//! CLIP and SigLIP with class names: from a transformers directory, a text file and prompts to a model
//! whose logits are the similarity of an image with each text.
//!
//! The directory holds `config.json` (`model_type` `clip` or `siglip`), `model.safetensors`, `tokenizer.json` and,
//! optionally, `tokenizer_config.json` for the padding token and `processor_config.json` or `preprocessor_config.json`
//! for the images. Texts are truncated to the context length as in transformers; a SigLIP's are padded to it.

use crate::model::Model;
use crate::preprocessing;
use crate::towers;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use wave_data::Tokenizer;
use wave_hub::TOKENIZER_FILE as TOKENIZER;
use wave_models::refuse;
use wave_models::zero_shot::{DualEncoder, normalised};
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::locate;
use wave_run::progress;
use wave_run::settings::ZeroShot;

/// Default prompt for a class, CLIP's.
const PROMPT: &str = "a photo of a {}.";
/// Placeholder for the class name in a prompt.
const PLACE: &str = "{}";
/// Number of texts embedded between two checks for Ctrl-C.
const TEXTS: usize = 256;
/// Number of texts from which on embedding is slow enough to report progress.
const MANY: usize = 1000;
/// Default padding token, SigLIP's.
const PADDING: u32 = 1;

/// The texts that define a zero-shot model's classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The prompts for each class.
    pub prompts: Vec<String>,
    /// SHA-256 of names and of the tokens of all texts.
    pub digest: String,
}

/// Refuses class names if there is no ancestor.
pub fn check(settings: &ZeroShot, ancestor: Option<&str>) -> Result<()> {
    if ancestor.is_none() && *settings != ZeroShot::default() {
        refuse!(
            "labels and prompt name the classes of an ancestor, but there is no ancestor; give \
             --ancestor A, a CLIP or SigLIP"
        );
    }
    Ok(())
}

/// Reads a model for classification: a CLIP or SigLIP if `settings` give class names, as only these need, else as
/// [`Model::read_with_heads`].
pub fn open(
    path: &Path,
    heads: Option<usize>,
    settings: &ZeroShot,
    context: &Context,
) -> Result<(Model, Option<Named>)> {
    let Some(file) = &settings.labels else {
        if settings.prompt.is_some() {
            refuse!("--prompt needs class names, but there are none; give --labels FILE");
        }
        return Ok((Model::read_with_heads(path, heads, context)?, None));
    };
    let dir = locate::locate(path, context)?;
    let dir = wave_hub::model_directory(&dir);
    let Some((config, dual)) = towers::read(dir)? else {
        refuse!(
            "--labels {file}: {} has no text tower; drop --labels, or give the directory of a \
             whole CLIP or SigLIP in transformers' layout",
            path.display()
        );
    };
    if let Some(heads) = heads {
        refuse!(
            "--heads {heads}: the config.json of {} gives the heads of {}; drop --heads",
            path.display(),
            dual.images.about().family
        );
    }
    let names = names(Path::new(file))?;
    let prompts = prompts(settings.prompt.as_deref())?;
    let texts = texts(dir, &config, &dual, &names, &prompts)?;
    let (network, weights) = dual.classifier(&classes(&dual, &texts, names.len(), context)?)?;
    let digest = json!([names, texts]).to_string();
    let named = Named {
        prompts,
        digest: wave_hub::sha256_hex(digest.as_bytes()),
    };
    let tower = &dual.images.tower;
    let (_, transform) = preprocessing::read(dir, (tower.channels, tower.image_size))?;
    let model = Model {
        transform,
        network,
        weights,
        label_names: names,
        provenance: Value::Null,
    };
    Ok((model, Some(named)))
}

/// The names in a text file, one per line.
fn names(file: &Path) -> Result<Vec<String>> {
    let text = wave_hub::read_text(file)?;
    let wrong = |found: String| request(format!("--labels {}: {found}", file.display()));
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim_end();
    let names: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    let mut lines = BTreeMap::new();
    for (name, line) in names.iter().zip(1..) {
        if name.is_empty() {
            return Err(wrong(format!(
                "line {line} is empty, but every line names a class; remove it"
            )));
        }
        if let Some(first) = lines.insert(name, line) {
            return Err(wrong(format!(
                "lines {first} and {line} are both {name:?}, but class names must be unique; \
                 rename or remove one"
            )));
        }
    }
    match names.len() {
        n @ (0 | 1) => Err(wrong(format!(
            "it has {n} names, expected at least 2; write one per line"
        ))),
        _ => Ok(names),
    }
}

/// The given prompts, or the default.
fn prompts(given: Option<&[String]>) -> Result<Vec<String>> {
    let prompts = match given.unwrap_or_default() {
        [] => vec![PROMPT.to_owned()],
        given => given.to_vec(),
    };
    match prompts.iter().find(|prompt| !prompt.contains(PLACE)) {
        None => Ok(prompts),
        Some(odd) => refuse!(
            "--prompt {odd:?} has no place for a name; write {PLACE} there, as in {PROMPT:?}"
        ),
    }
}

/// The texts of all classes as tokens, class by class.
fn texts(
    dir: &Path,
    config: &Value,
    dual: &DualEncoder,
    names: &[String],
    prompts: &[String],
) -> Result<Vec<Vec<u32>>> {
    let file = dir.join(TOKENIZER);
    if !file.exists() {
        refuse!(
            "{} has no {TOKENIZER}, which tokenises the names; write it there with transformers: \
             `AutoTokenizer.from_pretrained(..).save_pretrained(..)`",
            dir.display()
        );
    }
    let text = &dual.text;
    let tokenizer = Tokenizer::read(&file)?.truncated(text.context)?;
    let token = || padding(dir, config, &tokenizer);
    let padding = (!text.causal()).then(token).transpose()?;
    let mut all = Vec::with_capacity(names.len() * prompts.len());
    for name in names {
        for prompt in prompts {
            let mut tokens = tokenizer.encode(&prompt.replace(PLACE, name))?;
            if let Some(padding) = padding {
                tokens.resize(text.context, padding);
            }
            if let Some(odd) = tokens.iter().find(|t| **t as usize >= text.vocabulary) {
                refuse!(
                    "{}: token {odd} of {name:?} is outside the text tower's vocabulary of {}; use \
                     the {TOKENIZER} of this model",
                    file.display(),
                    text.vocabulary
                );
            }
            if text.end.place(&tokens).is_none() {
                refuse!(
                    "{}: the text of {name:?} has no end token ({:?}, eos_token_id of text_config) \
                     among its tokens {tokens:?}; use the {TOKENIZER} of this model",
                    file.display(),
                    text.end
                );
            }
            all.push(tokens);
        }
    }
    Ok(all)
}

/// The token used for padding texts.
fn padding(dir: &Path, config: &Value, tokenizer: &Tokenizer) -> Result<u32> {
    let file = dir.join("tokenizer_config.json");
    if file.exists() {
        let said: Value = wave_hub::read_json(&file)?;
        let token = &said["pad_token"];
        if let Some(token) = token.as_str().or(token["content"].as_str()) {
            return tokenizer.token(token).ok_or_else(|| {
                request(format!(
                    "{}: pad_token is {token:?}, which {} does not contain; use both files of one \
                     model",
                    file.display(),
                    tokenizer.path
                ))
            });
        }
    }
    let said = config["text_config"]["pad_token_id"].as_u64();
    let said = said.and_then(|id| u32::try_from(id).ok());
    Ok(tokenizer.padding.or(said).unwrap_or(PADDING))
}

/// Embeddings (classes, embedding) of the classes, each from the same number of texts.
fn classes(
    dual: &DualEncoder,
    texts: &[Vec<u32>],
    classes: usize,
    context: &Context,
) -> Result<Tensor> {
    let n = texts.len();
    if n >= MANY {
        progress::note(&format!("wave: embedding {n} texts for {classes} classes"));
    }
    let tower = dual.texts(context.device())?;
    let mut parts = Vec::new();
    for some in texts.chunks(TEXTS) {
        context.interruption().check()?;
        parts.push(tower.embed(some)?);
    }
    let all = Tensor::cat(&parts, 0)?.reshape((classes, (), dual.images.embedding))?;
    let classes = match all.dim(1)? {
        1 => all.squeeze(1)?,
        _ => normalised(&all.mean(1)?)?,
    };
    let values = classes.flatten_all()?.to_vec1::<f32>()?;
    if values.iter().any(|value| !value.is_finite()) {
        anyhow::bail!(
            "the text tower's embeddings are not finite, although all weights are: activations \
             overflow on these texts"
        );
    }
    Ok(Tensor::from_vec(values, classes.dims(), &Device::Cpu)?)
}
