//! A small set of HTML elements. All text is escaped; only these functions generate markup.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// One column on phones; elsewhere as many pictures side by side as fit.
const STYLE: &str = include_str!("page.css");

/// A self-contained page.
pub(super) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
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
