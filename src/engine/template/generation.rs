//! The `{% generation %}` block of chat templates. Transformers renders what stands in it and only marks it for
//! training; minijinja knows no such tag and takes none from outside. So it becomes the block that does the
//! same: `{% with %}`, which renders its body in a scope of its own and must be closed too.

use std::borrow::Cow;

/// The source with `generation` and `endgeneration` replaced. Comments, raw blocks and texts in quotes that
/// merely show the tag stay as they are.
pub fn as_with_blocks(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (text, tail) = rest.split_at(at);
        out.push_str(text);
        let length = match tail.as_bytes().get(1) {
            Some(b'#') => tail.find("#}").map(|end| end + 2),
            Some(b'{') => closed(tail, "}}"),
            Some(b'%') => match (word(tail), closed(tail, "%}")) {
                ("raw", Some(end)) => Some(end + raw_length(&tail[end..])),
                (name @ ("generation" | "endgeneration"), Some(end)) => {
                    let with = if name == "generation" { "with" } else { "endwith" };
                    out.push_str(&tail[..end].replacen(name, with, 1));
                    rest = &tail[end..];
                    continue;
                }
                (_, end) => end,
            },
            _ => Some(1),
        };
        // What is never closed is left for the parser to refuse.
        let length = length.unwrap_or(tail.len());
        out.push_str(&tail[..length]);
        rest = &tail[length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The first word of a block tag: `set` of `{%- set x = 1 %}`.
fn word(tag: &str) -> &str {
    let inner = tag[2..].trim_start_matches(['-', '+']).trim_start();
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    &inner[..end]
}

/// Length of a tag up to and with its end, which counts neither in quotes nor inside brackets.
fn closed(tag: &str, end: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    let mut depth = 0_usize;
    for (at, c) in tag.char_indices().skip(2) {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, _) if depth == 0 && tag[at..].starts_with(end) => return Some(at + end.len()),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Length of what a raw block shows, up to the tag that ends it.
fn raw_length(body: &str) -> usize {
    let end = body.match_indices("{%").map(|(at, _)| at).find(|at| word(&body[*at..]) == "endraw");
    end.unwrap_or(body.len())
}

#[cfg(test)]
mod tests {
    use super::as_with_blocks;

    #[test]
    fn the_tag_is_replaced_and_keeps_its_marks() {
        for (source, expected) in [
            ("a{% generation %}b{% endgeneration %}c", "a{% with %}b{% endwith %}c"),
            ("{%- generation -%} b {%+ endgeneration +%}", "{%- with -%} b {%+ endwith +%}"),
            ("{%generation%}b{%endgeneration%}", "{%with%}b{%endwith%}"),
            ("{{ {'a': {'b': '}}'}} }}{% generation %}", "{{ {'a': {'b': '}}'}} }}{% with %}"),
            ("{% set s = '%}' %}{% generation %}", "{% set s = '%}' %}{% with %}"),
            ("{# {% #}{% generation %}", "{# {% #}{% with %}"),
            ("{% raw %}{{ '{% endraw %}{% generation %}", "{% raw %}{{ '{% endraw %}{% with %}"),
        ] {
            assert_eq!(as_with_blocks(source), expected);
        }
    }

    #[test]
    fn what_only_shows_the_tag_stays() {
        for source in [
            "{{ '{% generation %}' }}",
            "{{ \"a\\\"{% generation %}\" }}",
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% set generation = 1 %}{{ generation }} { % generation % } {",
            "{{ never closed {% generation %}",
            "generation {%",
            "{% generation",
        ] {
            assert_eq!(as_with_blocks(source), source);
        }
    }
}
