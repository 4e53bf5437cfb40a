//! Sections that the cards of models and of templates share.

use crate::Preprocessing;

/// The paper of the templates, as cards cite it.
pub const PAPER: &str = "The method is WAVE: *Weight Templates for Adaptive Initialization of Variable-sized Models*, Feng, \
     Xie, Wang and Geng, CVPR 2025, [arXiv 2406.17503](https://arxiv.org/abs/2406.17503).\n";

/// Maximum number of classes that a card names.
const MOST_NAMED: usize = 100;

/// The classes, in the order of the logits, and the steps that prepare an image.
pub fn card_interface(label_names: &[String], classes: usize, steps: &Preprocessing) -> String {
    let mut text = String::from("\n## Classes\n\n");
    let named = label_names.iter().take(MOST_NAMED).map(|name| code(name));
    let named: Vec<String> = named.collect();
    text += &match (classes, named.len()) {
        (0, _) => "None: a backbone that outputs features.\n".to_owned(),
        (n, 0) => format!("{n}, without names.\n"),
        (n, most) => {
            let rest = match n.saturating_sub(most) {
                0 => String::new(),
                rest => format!(" and {rest} more, in `label_names` of `config.json`"),
            };
            format!(
                "{n}, in the order of the logits: {}{rest}.\n",
                named.join(", ")
            )
        }
    };
    text += "\n## Preprocessing\n\n| | |\n|---|---|\n";
    text += &format!("| channels | {} |\n", steps.channels);
    for (step, value, _) in steps.described() {
        text += &format!("| {step} | {value} |\n");
    }
    text
}

/// Example code that classifies an image with timm, which loads the model `name`. It prints class names if `named`.
pub fn card_timm(name: &str, channels: usize, classes: usize, named: bool) -> String {
    let mode = if channels == 1 { "L" } else { "RGB" };
    let mut text = format!(
        "\n```python\nimport timm, torch\nfrom PIL import Image\n\n\
         model = timm.create_model(\"{name}\", pretrained=True).eval()\n\
         prepare = timm.data.create_transform(**timm.data.resolve_model_data_config(model))\n\
         image = prepare(Image.open(\"image.png\").convert(\"{mode}\"))\n\
         with torch.inference_mode():\n"
    );
    text += match (classes, named) {
        (0, _) => "    features = model(image[None])[0]\n```\n",
        (_, false) => {
            "    probabilities = model(image[None]).softmax(-1)[0]\n\
             print(int(probabilities.argmax()), float(probabilities.max()))\n```\n"
        }
        (_, true) => {
            "    probabilities = model(image[None]).softmax(-1)[0]\n\
             print(model.pretrained_cfg[\"label_names\"][probabilities.argmax()], float(probabilities.max()))\n```\n"
        }
    };
    text
}

/// The same with transformers, for the model in the directory or repository `DIR`.
pub fn card_transformers(channels: usize) -> String {
    let (array, image) = match channels {
        // It accepts grey images only as arrays.
        1 => (
            "import numpy\n",
            "numpy.asarray(Image.open(\"image.png\").convert(\"L\"))[None]",
        ),
        _ => ("", "Image.open(\"image.png\").convert(\"RGB\")"),
    };
    format!(
        "\n```python\n{array}from PIL import Image\n\
         from transformers import AutoImageProcessor, AutoModelForImageClassification\n\n\
         processor = AutoImageProcessor.from_pretrained(\"DIR\")\n\
         model = AutoModelForImageClassification.from_pretrained(\"DIR\")\n\
         image = processor({image}, return_tensors=\"pt\")\n\
         print(model.config.id2label[int(model(**image).logits.argmax())])\n```\n"
    )
}

/// A number in millions, for tables.
pub fn millions(n: usize) -> String {
    format!("{:.2} M", n as f64 / 1e6)
}

/// Text as inline code, on a single line.
fn code(text: &str) -> String {
    let plain = |c: char| if c.is_control() || c == '`' { ' ' } else { c };
    format!("`{}`", text.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_in_order_and_on_their_line() {
        let steps = Preprocessing::assumed();
        let names = ["a cat", "d`o\ng"].map(str::to_owned);
        let text = card_interface(&names, 2, &steps);
        let line = "2, in the order of the logits: `a cat`, `d o g`.\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| size | 224 x 224 |\n"), "{text}");
        let many: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let text = card_interface(&many, 1000, &steps);
        assert!(
            text.contains("`99` and 900 more, in `label_names`"),
            "{text}"
        );
        assert!(card_interface(&[], 0, &steps).contains("a backbone"));
        for named in [true, false] {
            assert_eq!(card_timm("m", 3, 2, named).contains("label_names"), named);
        }
    }
}
