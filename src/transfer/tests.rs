use std::path::Path;

use proptest::prelude::*;

use super::draft::{Draft, Figures, Words};
use super::graft::{Node, graft};
use super::*;
use crate::chat::{
    ConversationId, Cut, Entry, Finish, KNOBS, Made, MessageId, Origin, Overflow, Sampling, Timings, TokenRecord, Usage,
};

fn read_text(text: &str) -> Result<Vec<Result<Found, String>>, String> {
    read(Path::new("chat.json"), text.as_bytes().to_vec(), &Sampling::default())
}

fn one(text: &str) -> Found {
    let mut all = read_text(text).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0).unwrap()
}

/// Texts that have broken readers and names.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z \n]{0,40}",
        Just("<!-- llmchat {} --> </script><script type=\"application/json\" id=\"llmchat\">{}</script> --".to_owned()),
        Just("../../etc/passwd\0\x1b]52;c;eA==\x07 CON \u{202e}".to_owned()),
        Just("```\ncode <b>\n```\n## You\n\n\r\nx".to_owned()),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    (any::<u32>(), texts(), 0u32..2000, proptest::option::of(-9.0f32..0.0)).prop_map(|(seed, model, n, score)| Made {
        model,
        sampling: Sampling { top_k: n % 100, ..Sampling::default() },
        seed,
        finish: Finish::Stop,
        usage: Usage { prompt_tokens: n, reused_tokens: n / 2, completion_tokens: 3 },
        timings: Timings { decode_ms: f64::from(n) / 7.0, ..Timings::default() },
        score: score.map(|s| (s * 16.0).round() / 16.0),
        earlier: vec![(n, Sampling::default())],
        looped: n % 2 == 0,
        origin: (n % 3 == 0).then(|| Box::new(Origin { n_ctx: n, batches: vec![n, 1], ..Origin::default() })),
    })
}

prop_compose! {
    fn conversations()(
        said in proptest::collection::vec((any::<u32>(), texts(), proptest::option::of(made()), any::<bool>()), 0..12),
        knobs in proptest::collection::vec((0..KNOBS.len(), 0.0f64..1.0), 0..6),
        (title, system, draft) in (proptest::option::of(texts()), texts(), texts()),
        (created, head, cut) in (0i64..2_000_000_000_000, any::<u32>(), any::<bool>()),
    ) -> Conversation {
        let id = ConversationId::new(created, head);
        let mut c = Conversation::new(id, created, Sampling::default());
        for (nth, share) in knobs {
            let spec = &KNOBS[nth];
            let _ = spec.set(&mut c.sampling, spec.min + (spec.max - spec.min) * share);
        }
        c.sampling = c.sampling.sanitised();
        (c.title, c.system, c.draft) = (title, system, draft);
        let mut id = 0;
        for (pick, text, made, answer) in said {
            let parent = (id > 0 && pick % 5 > 0).then(|| c.messages[pick as usize % c.messages.len()].id);
            id += 1 + pick % 3;
            let role = if answer { Role::Assistant } else { Role::User };
            let record = |n: i32| TokenRecord {
                bytes: 2, logprob: n as f32 / 10_000.0, rank: 3, others: vec![(text.clone(), -1.5)],
            };
            let tokens = if answer { vec![record(-5), record(-70_001)] } else { Vec::new() };
            let message = Message::new(id, parent, role, text.clone(), i64::from(pick));
            c.apply(&Entry::Message(Message { made: made.filter(|_| answer), tokens, ..message }));
        }
        if cut && id > 0 {
            c.apply(&Entry::Cut(Cut { after: id, tokens: 5, summary: c.title.clone() }));
            c.overflow = Overflow::Drop;
        }
        let ids: Vec<MessageId> = c.messages.iter().map(|m| m.id).collect();
        c.head = ids.get(head as usize % (ids.len() + 1)).copied();
        c
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Out and in again: the same tree, settings, figures and probabilities, in each format that can carry them.
    #[test]
    fn what_goes_out_whole_comes_in_as_it_was(c in conversations()) {
        for format in FORMATS.iter().filter(|r| r.whole).map(|r| r.format) {
            let text = render(&c, format, true);
            prop_assert_eq!(&one(&text).conversation, &c, "{:?}: {}", format, text);
        }
    }

    /// Whatever is in it: a page and a text without anything that acts, and a name that is one.
    #[test]
    fn what_is_read_is_harmless(c in conversations()) {
        for format in [Format::Html, Format::Markdown, Format::Text] {
            let text = render(&c, format, false);
            prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{:?}", text);
            let turns = text.contains('\u{202e}');
            prop_assert!(!turns);
        }
        let page = render(&c, Format::Html, false);
        let tags = ["!DOCTYPE", "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "small", "main",
            "article", "div", "span", "pre", "code", "input", "label"];
        for (at, _) in page.match_indices('<') {
            let tag: String = page[at + 1..].trim_start_matches('/').chars().take_while(|c| !" >".contains(*c)).collect();
            prop_assert!(tags.contains(&tag.as_str()), "<{}>", tag);
        }
        prop_assert!(!["<script", "href=", "src=", "url(", "@import", "javascript:", "onload="]
            .iter().any(|word| page.to_lowercase().contains(word)));
        let name = file_name(&c, Format::Markdown);
        prop_assert!(name.len() < 80 && name.starts_with(c.id.as_str()));
        prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.'), "{}", name);
    }

    /// Nodes that name each other at random: every one that says something comes in once, parents before children.
    #[test]
    fn any_parents_make_a_tree(
        nodes in proptest::collection::vec((0usize..30, proptest::option::of(0usize..40), any::<bool>(), -5i64..5), 0..40),
    ) {
        let nodes: Vec<Node> = nodes.into_iter().map(|(key, parent, says, at)| Node {
            key: key.to_string(), parent: parent.map(|p| p.to_string()), words: says.then(words), at,
        }).collect();
        let grafted = graft(&nodes);
        prop_assert_eq!(grafted.messages.len(), nodes.iter().filter(|n| n.words.is_some()).count());
        for (nth, (id, parent, ..)) in grafted.messages.iter().enumerate() {
            prop_assert_eq!(*id as usize, nth + 1);
            prop_assert!(parent.is_none_or(|p| p < *id));
        }
    }

    /// Files of all kinds with bytes changed, cut and doubled: something is said, nothing panics.
    #[test]
    fn damaged_files_are_told(
        nth in 0..EXAMPLES.len(),
        at in any::<proptest::sample::Index>(),
        to in any::<proptest::sample::Index>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..6),
    ) {
        let (name, text) = EXAMPLES[nth];
        let mut file = text.as_bytes().to_vec();
        let (at, to) = (at.index(file.len()), to.index(file.len()));
        file.splice(at.min(to)..at.max(to).min(at.min(to) + 40), bytes);
        for found in read(Path::new(name), file, &Sampling::default()).into_iter().flatten().flatten() {
            let c = found.conversation;
            prop_assert!(c.messages.iter().all(|m| m.parent.is_none_or(|p| p < m.id)));
            prop_assert!(ConversationId::parse(c.id.as_str()).is_some());
        }
    }
}

const EXAMPLES: [(&str, &str); 7] = [
    ("llama-cpp.jsonl", include_str!("../../tests/transfer/llama-cpp.jsonl")),
    ("llama-cpp.json", include_str!("../../tests/transfer/llama-cpp.json")),
    ("conversations.json", include_str!("../../tests/transfer/conversations.json")),
    ("1.conversation.json", include_str!("../../tests/transfer/1755000000000.conversation.json")),
    ("bread.yaml", include_str!("../../tests/transfer/bread.yaml")),
    ("sharegpt.json", include_str!("../../tests/transfer/sharegpt.json")),
    ("messages.jsonl", include_str!("../../tests/transfer/messages.jsonl")),
];

fn words() -> Words {
    Words { role: Role::User, text: "x".to_owned(), model: None, figures: Figures::default() }
}

fn node(key: usize, parent: Option<usize>, says: bool) -> Node {
    Node { key: key.to_string(), parent: parent.map(|p| p.to_string()), words: says.then(words), at: 0 }
}

#[test]
fn a_circle_is_cut_and_told() {
    let grafted = graft(&[node(1, Some(3), true), node(2, Some(1), true), node(3, Some(2), true)]);
    let parents: Vec<_> = grafted.messages.iter().map(|m| m.1).collect();
    assert_eq!((parents, grafted.circles), (vec![None, Some(1), Some(2)], 1));
    // A circle of nodes that say nothing, and one that follows itself.
    let grafted =
        graft(&[node(1, Some(2), false), node(2, Some(1), false), node(3, Some(1), true), node(4, Some(4), true)]);
    assert_eq!((grafted.messages.len(), grafted.messages[0].1, grafted.circles), (2, None, 1));
    assert_eq!(grafted.messages[1].1, None);
}

#[test]
fn a_long_line_in_the_wrong_order_is_quick_and_needs_no_stack() {
    let n = 200_000;
    let nodes: Vec<Node> = (0..n).rev().map(|i| node(i, i.checked_sub(1), i % 3 == 0)).collect();
    let grafted = graft(&nodes);
    assert_eq!(grafted.messages.len(), n.div_ceil(3));
    assert!(grafted.messages.iter().skip(1).all(|(id, parent, ..)| *parent == Some(id - 1)));
    assert_eq!(grafted.ids[&(n - 1).to_string()], Some(n.div_ceil(3) as u32));
}

#[test]
fn deep_huge_and_foreign_files_are_refused_with_a_reason() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (bytes, word) in [
        (deep.clone().into_bytes(), "recursion limit"),
        (format!("{{\"messages\":{deep}}}").into_bytes(), "recursion limit"),
        (b"PK\x03\x04...".to_vec(), "Unpack"),
        (vec![0x1f, 0x8b, 8], "Unpack"),
        (b"{\"messages\":[{\"role\":\"user\",\"content\":\"caf\xe9\"}]}".to_vec(), "byte 43 is not"),
        (b"  \n".to_vec(), "empty"),
        (b"[{\"mapping\":".to_vec(), "damaged"),
        (b"{\"a\":1,\"b\":2}".to_vec(), "it has a, b"),
        (b"Dear diary".to_vec(), "nothing that is understood"),
        (b"a: &a [*a]".to_vec(), "nothing that is understood"),
    ] {
        let why = match read(Path::new("x"), bytes, &Sampling::default()) {
            Err(why) => why,
            Ok(all) => all.into_iter().next().unwrap().unwrap_err(),
        };
        assert!(why.contains(word), "{why} / {word}");
    }
    // Aliases that double ten times ten times.
    let more = (1..12).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", ")));
    let bomb: String = std::iter::once("a0: &a0 [x, x, x, x, x]\n".to_owned()).chain(more).collect();
    assert!(read(Path::new("x.yaml"), bomb.into_bytes(), &Sampling::default()).is_err());
}

#[test]
fn own_files_that_are_no_tree_are_refused() {
    let head = r#"{"format":"llmchat conversation","version":1,"id":"1-1","messages":"#;
    let message = |id: u32, parent: u32| format!(r#"{{"id":{id},"parent":{parent},"role":"user","text":"x"}}"#);
    for (messages, word) in [
        (format!("[{},{}]}}", message(1, 2), message(2, 1)), "not younger"),
        (format!("[{}]}}", message(2, 1)), "not there"),
        (
            r#"[{"id":1,"role":"user","text":"x","parent":null},{"id":1,"role":"user","text":"y","parent":null}]}"#
                .into(),
            "twice",
        ),
    ] {
        let why = read_text(&(head.to_owned() + &messages)).unwrap().remove(0).unwrap_err();
        assert!(why.contains(word), "{why}");
    }
    let (second, first) = (message(2, 1), r#"{"id":1,"parent":null,"role":"user","text":"x"}"#);
    let turned = one(&format!("{head}[{second},{first}]}}")).conversation;
    assert_eq!(turned.messages.iter().map(|m| m.id).collect::<Vec<_>>(), [1, 2]);
    let newer = head.replace("\"version\":1", "\"version\":99") + "[]}";
    assert!(read_text(&newer).unwrap().remove(0).unwrap_err().contains("newer"));
    // An id that would name another file gets another one.
    let odd = head.replace("1-1", "../../x") + "[]}";
    assert!(read_text(&odd).unwrap().remove(0).unwrap_err().contains("id"));
    let plain = head.replace("1-1", "CON") + r#"[{"id":1,"parent":null,"role":"user","text":"x"}]}"#;
    assert!(one(&plain).conversation.id.as_str().starts_with("0000000000000-"));
}

#[test]
fn nothing_comes_in_twice_and_what_has_grown_comes_in_beside() {
    let short = r#"{"id":"a","messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"}]}"#;
    let long = short.replace("]}", r#",{"role":"user","content":"3"}]}"#);
    let Arrival::New(first) = one(short).arrival(|_| None) else { panic!() };
    let here = |id: &ConversationId| (*id == first.id).then(|| (*first).clone());
    assert_eq!(one(short).arrival(here), Arrival::Here(first.id.clone()));
    let Arrival::Grown { conversation, beside, more } = one(&long).arrival(here) else { panic!() };
    assert_eq!((beside, more), (first.id.clone(), 1));
    let both = |id: &ConversationId| [&first, &conversation].into_iter().find(|c| c.id == *id).map(|c| (**c).clone());
    assert_eq!(one(&long).arrival(both), Arrival::Here(conversation.id.clone()));
    assert_eq!(one(short).arrival(both), Arrival::Here(first.id.clone()));
    // Gone on with here: what came from there is still in it.
    let mut gone_on = (*first).clone();
    gone_on.apply(&Entry::Message(Message::new(9, Some(2), Role::User, "here", 0)));
    assert_eq!(one(short).arrival(|_| Some(gone_on.clone())), Arrival::Here(first.id.clone()));
    // Another conversation of that name elsewhere.
    let other = short.replace("\"1\"", "\"0\"");
    assert_ne!(one(&other).conversation.id, first.id);
}

#[test]
fn times_are_seconds_milliseconds_or_dates() {
    let time = |json: &str| content::time(Some(&serde_json::from_str(json).unwrap()));
    assert_eq!(time("1700000000.25"), 1_700_000_000_250);
    assert_eq!(time("1700000000250"), 1_700_000_000_250);
    assert_eq!(time("\"2023-11-14T22:13:20Z\""), 1_700_000_000_000);
    for odd in ["-5", "1e300", "\"yesterday\"", "null", "{}"] {
        assert_eq!(time(odd), 0, "{odd}");
    }
}

#[test]
fn what_stands_behind_export_is_a_format_a_path_or_both() {
    let path = |p: &str| Some(PathBuf::from(p));
    assert_eq!(target(""), Ok((Format::Markdown, None)));
    assert_eq!(target("html"), Ok((Format::Html, None)));
    assert_eq!(target(" JSON  my chat.txt"), Ok((Format::Json, path("my chat.txt"))));
    assert_eq!(target("a b/river.html"), Ok((Format::Html, path("a b/river.html"))));
    assert_eq!(target("notes/"), Ok((Format::Markdown, path("notes/"))));
    assert_eq!(target("river.pdf").unwrap_err(), "'river.pdf' is no format; there are md, html, txt, json, jsonl");
    for (nth, row) in FORMATS.iter().enumerate() {
        assert_eq!((Format::named(row.name), row.format.row().name), (Some(FORMATS[nth].format), row.name));
    }
}

#[test]
fn a_page_shades_tokens_and_tells_their_numbers() {
    let mut c = Conversation::new(ConversationId::new(1, 1), 1_700_000_000_000, Sampling::default());
    c.title = Some("Foxes & <rivers>".into());
    c.apply(&Entry::Message(Message::new(1, None, Role::User, "Say <b>hé</b>", 0)));
    let record = |bytes, logprob, rank| TokenRecord { bytes, logprob, rank, others: vec![("\"x\n".into(), -0.5)] };
    // The é is split between two tokens: it comes whole with the second.
    let tokens = vec![record(2, -0.1, 1), record(1, -6.0, 9), record(1, -3.5, 4)];
    let message = Message::new(2, Some(1), Role::Assistant, "<hé!", 0);
    c.apply(&Entry::Message(Message { tokens, ..message }));
    let page = render(&c, Format::Html, false);
    for part in [
        "<title>Foxes &amp; &lt;rivers&gt;</title>",
        "Say &lt;b&gt;hé&lt;/b&gt;",
        "<span class=\"s0\" title=\"90.5 % · rank 1 · &quot;x↵ 60.7 %\">&lt;h</span>",
        "<span class=\"s2\" title=\"3.0 % · rank 4",
        "\">é</span>!</div>",
        "shade tokens by surprise",
        "default-src 'none'",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn settings_out_of_range_are_left_out_and_told() {
    let mut draft = Draft::new(Source::Oterm);
    draft.say("me", "hello".into(), 0, None);
    draft.settings = vec![("temperature", "0.25".into()), ("top_p", "7".into())];
    let found = draft.finish(&Sampling::default()).unwrap();
    assert_eq!(found.conversation.sampling.temperature, 0.25);
    assert_eq!(found.conversation.sampling.top_p, Sampling::default().top_p);
    assert_eq!(found.lost, ["a setting: top_p is 7; it must be from 0 to 1"]);
}
