//! A conversation as one page: no script, nothing from elsewhere, every word of it escaped. Where the probabilities of
//! an answer were kept, its tokens are shaded by surprise and tell their numbers when pointed at.

use std::fmt::Write;

use super::{author, clean, date, embed, shown, title, unseen};
use crate::chat::{Conversation, Message, Role, TokenRecord};

/// Nothing is fetched, whatever gets into the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = "\
:root{color-scheme:light dark;--s1:#f5d76e66;--s2:#f0932b88;--s3:#eb4d4b99;--line:#8884}
body{font:16px/1.55 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}
.facts{color:GrayText}
article{border-top:1px solid var(--line);padding:.6rem 0;unicode-bidi:isolate}
h2{font-size:.95rem;margin:.2rem 0}
h2 small{font-weight:normal;color:GrayText}
.words{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext}
.you .words{font-weight:500}
pre{overflow-x:auto;padding:.6rem;border:1px solid var(--line);white-space:pre}
#shade:checked~main .s1{background:var(--s1)}
#shade:checked~main .s2{background:var(--s2)}
#shade:checked~main .s3{background:var(--s3)}
";

pub(super) fn render(c: &Conversation, whole: bool) -> String {
    let name = escape(&title(c));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    );
    let facts: Vec<String> = date(c.created).into_iter().chain(unseen(c)).collect();
    if !facts.is_empty() {
        let _ = writeln!(out, "<p class=\"facts\">{}</p>", escape(&facts.join(" · ")));
    }
    let messages = shown(c);
    if messages.iter().any(|m| !m.tokens.is_empty()) {
        let legend: Vec<String> = TokenRecord::SURPRISES
            .iter()
            .enumerate()
            .map(|(i, nats)| format!("<span class=\"s{}\">{:.1}&nbsp;%</span>", i + 1, (-nats).exp() * 100.0))
            .collect();
        let _ = write!(
            out,
            "<input type=\"checkbox\" id=\"shade\" checked><label for=\"shade\"> shade tokens by surprise</label>\n\
             <main>\n<p class=\"facts\">Shaded: tokens that the model found less probable than {}.</p>\n",
            legend.join(", ")
        );
    } else {
        out += "<main>\n";
    }
    if !c.system.trim().is_empty() {
        article(&mut out, "system", "System prompt", "", &words(c.system.trim()));
    }
    for message in messages {
        let class = if message.role == Role::User { "you" } else { "model" };
        let at = date(message.at).unwrap_or_default();
        article(&mut out, class, author(message), &at, &body(message));
    }
    out += "</main>\n";
    if whole {
        out += &embed::script(c);
    }
    out + "</body>\n</html>\n"
}

fn article(out: &mut String, class: &str, who: &str, when: &str, body: &str) {
    let who = escape(&crate::text::sanitise_line(who));
    let _ = writeln!(out, "<article class=\"{class}\">\n<h2>{who} <small>{when}</small></h2>\n{body}\n</article>");
}

fn body(message: &Message) -> String {
    if message.tokens.is_empty() { words(message.text.trim()) } else { shaded(message) }
}

/// Text with its fenced code set apart; everything else stands as it was written.
fn words(text: &str) -> String {
    let mut out = String::new();
    let mut block = String::new();
    let mut code = false;
    let mut end = |block: &mut String, code: bool| {
        let text = std::mem::take(block);
        let text = text.trim_matches('\n');
        if !text.is_empty() {
            let (open, close) =
                if code { ("<pre><code>", "</code></pre>") } else { ("<div class=\"words\">", "</div>") };
            let _ = write!(out, "{open}{}{close}", escape(text));
        }
    };
    for line in clean(text).lines() {
        if line.trim_start().starts_with("```") {
            end(&mut block, code);
            code = !code;
        } else {
            block.push_str(line);
            block.push('\n');
        }
    }
    end(&mut block, code);
    out
}

/// An answer token by token.
fn shaded(message: &Message) -> String {
    let mut out = "<div class=\"words\">".to_owned();
    let (mut at, mut end) = (0, 0usize);
    for record in &message.tokens {
        end = end.saturating_add(record.bytes as usize);
        // A token may end within a character; what cannot be cut here comes with the next one.
        let Some(text) = message.text.get(at..end) else { continue };
        at = end;
        let _ = write!(
            out,
            "<span class=\"s{}\" title=\"{}\">{}</span>",
            record.surprise(),
            escape(&told(record)),
            escape(&clean(text))
        );
    }
    out += &escape(&clean(message.text.get(at..).unwrap_or_default()));
    out + "</div>"
}

fn told(record: &TokenRecord) -> String {
    let percent = |log: f32| format!("{:.1} %", log.exp() * 100.0);
    let others: String = record
        .others
        .iter()
        .map(|(text, log)| format!(" · {} {}", crate::text::sanitise_line(&text.replace('\n', "↵")), percent(*log)))
        .collect();
    format!("{} · rank {}{others}", percent(record.logprob), record.rank)
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}
