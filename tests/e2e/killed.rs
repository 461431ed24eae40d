//! The chat is killed at random moments while somebody types, asks, edits, deletes and exports. An engine that writes
//! down what it was asked and what it said knows what must be in the files.
//!
//! `LLMCHAT_KILLS=1000 cargo test --release --test e2e killed -- --nocapture` kills more often than the ordinary run;
//! `LLMCHAT_SEED` makes others of it.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::harness::{Chat, Home, SIZE};

/// Kills of the ordinary run.
const KILLS: u64 = 12;
/// Kills with one home: its files grow.
const A_HOME: u64 = 8;
/// The latest moment, in milliseconds after the start.
const LATEST: u64 = 3500;
/// An answer is written about once a second, typing too. The rest is for a machine that does something else as well.
const MAY_BE_LOST: Duration = Duration::from_secs(2);

/// Answers every question with 90 numbered words; each question and each word is written down.
const ENGINE: &str = r#"echo '{"event":"hello","version":"0"}'
read -r load
echo '{"event":"loaded","name":"Script","description":"","weight_bytes":1,"n_ctx_train":100000,"n_ctx":100000,"n_vocab":9,"kv_bytes_per_token":1,"kv_bytes_reserved":100,"kv_type":"f16","has_template":true,"notes":[],"device":"CPU","threads":1,"load_ms":1.0}'
answer=0
while read -r request; do
  case "$request" in
    *'"request":"generate"'*) ;;
    *'"request":"cancel"'*)
      kill $writer 2>/dev/null && echo && echo '{"event":"finished","job":'$job',"text":"","finish":"cancelled","usage":{},"timings":{},"seed":1,"sampling":{},"cells":{"system":0,"user":3,"assistant":1}}'
      continue ;;
    *) continue ;;
  esac
  job=$(printf '%s' "$request" | sed 's/.*"job":\([0-9]*\).*/\1/')
  printf '%s\n' "$request" >> "$ASKED"
  answer=$((answer + 1))
  (
    echo '{"event":"started","job":'$job',"prompt_tokens":3,"reused_tokens":0,"cells":{"system":0,"user":3,"assistant":0},"seed":1,"notes":[]}'
    n=0
    while [ $n -lt 90 ]; do
      n=$((n + 1))
      word="${RUN}w${answer}x$n"
      echo '{"event":"token","job":'$job',"text":"'$word' ","n":'$n',"gap_ms":1.0}'
      echo "$(date +%s%N) $word" >> "$SAID"
      sleep 0.01
    done
    echo '{"event":"finished","job":'$job',"text":"","finish":"stop","usage":{},"timings":{},"seed":1,"sampling":{},"cells":{"system":0,"user":3,"assistant":1}}'
  ) &
  writer=$!
done
"#;

/// Numbers that look random and are the same again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A word, and when it was there to be seen.
type Seen = (Duration, String);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn start(home: &Home, run: &str, first: bool) -> Chat {
    let script = home.path().join("engine.sh");
    std::fs::write(&script, ENGINE).unwrap();
    let (asked, said) = (home.path().join("asked"), home.path().join("said"));
    let command = format!("sh {}", script.display());
    let env = [
        ("LLMCHAT_ENGINE_COMMAND", command.as_str()),
        ("RUN", run),
        ("ASKED", asked.to_str().unwrap()),
        ("SAID", said.to_str().unwrap()),
    ];
    home.chat_with(if first { &[] } else { &["--continue"] }, &env, SIZE)
}

/// What somebody does who is in a hurry. What was typed and seen, with the time.
fn use_it(chat: &mut Chat, home: &Home, dice: &mut Dice, run: &str, until: Duration) -> Vec<Seen> {
    let mut typed: Vec<Seen> = Vec::new();
    let mut n = 0;
    let keys = |chat: &mut Chat, all: &[&str]| {
        for keys in all {
            chat.type_text(keys);
            chat.look_on(Duration::from_millis(40));
        }
    };
    while since_epoch() < until {
        n += 1;
        match dice.below(40) {
            0..18 => {
                let word = format!("{run}t{n}");
                chat.type_text(&format!("{word} "));
                chat.look_on(Duration::from_millis(5 + dice.below(40)));
                if chat.screen().contains(&word) {
                    typed.push((since_epoch(), word));
                }
            }
            18..28 => chat.type_text(&format!("{run}q{n}\r")),
            28..30 => chat.type_text("\x1b[18~"),
            30 => keys(chat, &["\r", "\x1b[19~", "changed ", "\r"]),
            31 => keys(chat, &["\r", "\t", "d", "i", "\x1b"]),
            32 => keys(chat, &["\r", "\x1bz"]),
            33 => keys(chat, &["\r", &format!("/temp 0.{n}\r")]),
            34 => keys(chat, &["\r", &format!("/rename Title {n} of {run}\r")]),
            35 => keys(chat, &["\r", &format!("/export {}/{run}x{n}.md\r", home.path().display())]),
            36 => keys(chat, &["\r", "/branch\r"]),
            37 => keys(chat, &["\x0e"]),
            38 if dice.below(4) == 0 => keys(chat, &["\r", "\x1b", "/delete\r"]),
            _ => keys(chat, &["\x1b"]),
        }
        chat.look_on(Duration::from_millis(dice.below(90)));
    }
    typed
}

/// Everything that is in the conversations of a home, and what the program says of them.
fn kept(home: &Home) -> String {
    let folder = home.path().join("data/conversations");
    let mut all = String::new();
    for folder in [folder.join("trash"), folder] {
        for one in llmchat::store::check(&folder, false).unwrap() {
            let fine = matches!(one.state, llmchat::store::State::Fine | llmchat::store::State::Torn);
            assert!(fine, "{}: {:?}", one.path.display(), one.notes);
        }
        for (id, path) in llmchat::store::files(&folder).unwrap() {
            let conversation = llmchat::store::load(&path, &id).unwrap().conversation;
            for text in conversation.messages.iter().map(|m| &m.text).chain([&conversation.draft]) {
                all.push_str(text);
                all.push('\n');
            }
        }
    }
    all
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

/// Every word that looks like a question: `<run>q<number>`.
fn questions(text: &str) -> impl Iterator<Item = &str> {
    let is_question = |word: &&str| {
        let mut parts = word.split('q');
        let digits = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        word.starts_with('7') && digits(parts.next()) && digits(parts.next()) && parts.next().is_none()
    };
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_question)
}

#[test]
fn killed_at_any_moment_it_loses_at_most_the_last_second() {
    let (kills, seed) = (number("LLMCHAT_KILLS", KILLS), number("LLMCHAT_SEED", 1));
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut asked, mut said, mut typed, mut lost) = (0, 0, 0, Duration::ZERO);
    let mut home = Home::new_beside();
    for kill in 0..kills {
        if kill % A_HOME == 0 && kill > 0 {
            home = Home::new_beside();
        }
        // Begins like no number of the screen.
        let run = format!("7{kill:04}");
        let mut chat = start(&home, &run, kill % A_HOME == 0);
        let until = since_epoch() + Duration::from_millis(dice.below(LATEST));
        let words = use_it(&mut chat, &home, &mut dice, &run, until);
        let end = since_epoch();
        chat.signal(Signal::KILL);
        chat.wait_exit();
        let kept = kept(&home);
        for question in lines(&home.path().join("asked")).iter().flat_map(|line| questions(line)) {
            assert!(kept.contains(question), "{question} was asked and is lost; kill {kill}, seed {seed}");
            asked += 1;
        }
        let heard = lines(&home.path().join("said")).into_iter().filter_map(|line| {
            let (at, word) = line.split_once(' ')?;
            Some((Duration::from_nanos(at.parse().ok()?), word.to_owned()))
        });
        for (n, (at, word)) in heard.chain(words).filter(|(_, word)| word.starts_with(&run)).enumerate() {
            let age = end.saturating_sub(at);
            if kept.contains(&format!("{word} ")) || kept.contains(&format!("{word}\n")) || at >= end {
                said += usize::from(word.contains('w'));
                typed += usize::from(word.contains('t'));
                continue;
            }
            lost = lost.max(age);
            assert!(age < MAY_BE_LOST, "{word}, {n}, is lost after {age:?}; kill {kill}, seed {seed}");
        }
    }
    println!("{kills} kills, seed {seed}: {asked} times a question, {said} words and {typed} typed ones were kept;");
    println!("the oldest word that was lost was {} ms old", lost.as_millis());
    assert!(asked > 0 && said > 0 && typed > 0);
}
