//! A small set of HTML elements. All text is escaped; only these functions generate markup.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// One column on phones; elsewhere as many pictures side by side as fit.
const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1, h2, td, th, dd, figcaption { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; }
h2 { border-top: 1px solid #8888; font-size: 1.2rem; margin-top: 2rem; padding-top: 1rem; }
table { border-collapse: collapse; }
td, th { padding: 0.1rem 1rem 0.1rem 0; text-align: left; vertical-align: top; }
th { min-width: 6.5rem; }
th[scope=row] { background: Canvas; left: 0; position: sticky; }
td.n { font-variant-numeric: tabular-nums; text-align: right; }
pre { overflow-x: auto; }
figure { margin: 0; }
figcaption { font-size: 0.8rem; }
.small, .large { display: grid; gap: 0.7rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(6rem, 1fr)); }
.large { grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
.composer, .facts { display: flex; flex-wrap: wrap; gap: 0.5rem 2rem; }
.composer label { align-items: center; display: inline-flex; gap: 0.5rem; }
.composer input { max-width: 14rem; width: 45vw; }
.composer output { font-variant-numeric: tabular-nums; font-weight: 600; min-width: 3ch; }
.facts dt { font-size: 0.8rem; }
.facts dd { font-size: 1.6rem; font-variant-numeric: tabular-nums; margin: 0; min-width: 6ch; }
.command { align-items: center; background: #8882; border-radius: 0.3rem; display: flex; gap: 1rem; justify-content: space-between; padding: 0.5rem 0.8rem; }
.command code { overflow-wrap: anywhere; }
#composer-curve { font-size: 12px; max-width: 44rem; width: 100%; }
#composer-curve text { fill: currentColor; }
#composer-curve path { fill: none; stroke: currentColor; }
#composer-curve .grid { opacity: 0.2; }
#composer-curve .line { opacity: 0.5; }
#composer-curve .dot { fill: currentColor; }
#composer-curve .chosen { stroke: #d6604d; stroke-width: 2; }
#composer-curve circle.chosen { fill: #d6604d; }
#composer-terms { align-items: center; display: flex; flex-wrap: wrap; gap: 0.7rem; }
#composer-terms figure { max-width: 100%; }
#composer-terms canvas { height: 6rem; min-width: 6rem; }
#composer-terms figure:last-child canvas { height: auto; max-height: 24rem; min-width: min(100%, 16rem); }
.sign { font-size: 1.3rem; }
.picture { display: flex; flex-wrap: wrap; gap: 1.5rem; }
.picture canvas { background: #8882; height: 10rem; width: 10rem; }
canvas { image-rendering: pixelated; max-width: 100%; }
img { display: block; height: auto; image-rendering: pixelated; width: 100%; }
.scale {
  background: linear-gradient(90deg, #2166ac, #fff, #b2182b); border: 1px solid; display: inline-block;
  height: 0.8rem; margin: 0 0.5rem; width: 8rem;
}
svg { display: block; height: auto; max-width: 100%; }
";

/// A self-contained page.
pub(super) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// A section with a heading, around markup.
pub(super) fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(title))
}

pub(super) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// Preformatted text, such as JSON.
pub(super) fn verbatim(text: &str) -> String {
    format!("<pre>{}</pre>\n", escape(text))
}

/// Markup that the reader can unfold.
pub(super) fn details(summary: &str, body: &str) -> String {
    format!(
        "<details>\n<summary>{}</summary>\n{body}</details>\n",
        escape(summary)
    )
}

/// A table of two columns; the first cell names a row.
pub(super) fn table(
    columns: [&str; 2],
    rows: impl IntoIterator<Item = (String, String)>,
) -> String {
    let [first, second] = columns.map(escape);
    let row = |(name, value): (String, String)| {
        let class = match value.starts_with(|c: char| c.is_ascii_digit()) {
            true => " class=\"n\"",
            false => "",
        };
        let (name, value) = (escape(&name), escape(&value));
        format!("<tr><th scope=\"row\">{name}</th><td{class}>{value}</td></tr>\n")
    };
    let rows: String = rows.into_iter().map(row).collect();
    format!(
        "<table>\n<thead>\n<tr><th scope=\"col\">{first}</th><th scope=\"col\">{second}</th></tr>\n\
         </thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    )
}

/// An embedded PNG with a caption.
pub(super) fn picture(png: &[u8], caption: &str) -> String {
    let caption = escape(caption);
    format!(
        "<figure><img src=\"data:image/png;base64,{}\" alt=\"{caption}\">\
         <figcaption>{caption}</figcaption></figure>\n",
        BASE64.encode(png)
    )
}

/// The colour scale of heat maps, from their smallest to their largest value.
pub(super) const COLOUR_SCALE: &str = "<p>lowest<span class=\"scale\"></span>highest</p>\n";

/// A script, with a JSON element with this `id` that it reads.
pub(super) fn script(id: &str, data: &serde_json::Value, code: &str) -> String {
    // In a script only `<` could end it, and in JSON it occurs only in strings.
    let data = data.to_string().replace('<', "\\u003c");
    let id = escape(id);
    format!(
        "<script type=\"application/json\" id=\"{id}\">{data}</script>\n<script>\n{code}</script>\n"
    )
}

/// Escapes text for elements and quoted attributes.
pub(super) fn escape(text: &str) -> String {
    // HTML has no escape for other control characters.
    let lost = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
        .replace(lost, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let evil = "</pre><img src=x onerror='a(\"b\")'>&amp;\u{0}";
        let safe =
            "&lt;/pre&gt;&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;&amp;amp;\u{fffd}";
        assert_eq!(escape(evil), safe);
        for markup in [
            document(evil, ""),
            section(evil, ""),
            paragraph(evil),
            verbatim(evil),
            details(evil, ""),
            table([evil; 2], [(evil.to_owned(), evil.to_owned())]),
            picture(b"", evil),
        ] {
            assert!(
                markup.contains(safe) && !markup.contains("<img src=x"),
                "{markup}"
            );
        }
    }
}
