use super::*;
use crate::chat::{Entry, Finish, Mode, Origin, Overflow, Role, StoreEvent, StoreRequest, Timings, Usage};
use crate::engine::protocol::{
    Cells, ContextParams, EngineEvent, EngineNews, ModelInfo, Problem, Prompt, Request, Turn,
};

/// An app with a clock that only moves when it is told to.
pub struct Rig {
    pub app: App,
    pub done: Vec<Effect>,
    clock: Instant,
}

pub fn info() -> ModelInfo {
    ModelInfo {
        name: "SmolLM2-135M".into(),
        description: String::new(),
        weight_bytes: 1,
        n_ctx_train: 8192,
        n_ctx: 8192,
        n_vocab: 49_152,
        kv_bytes_per_token: 23_040,
        kv_bytes_reserved: 188_743_680,
        kv_type: "f16".into(),
        has_template: true,
        notes: vec![],
        device: "CPU".into(),
        threads: 2,
        load_ms: 1.0,
        recommended: vec![],
        origin: Origin::default(),
    }
}

impl Rig {
    pub fn new(size: (u16, u16)) -> Self {
        let clock = Instant::now();
        let start = Start {
            model: Ok("/models/SmolLM2-135M.gguf".into()),
            params: ContextParams::default(),
            sampling: Sampling::default(),
            system: String::new(),
            overflow: Overflow::Ask,
            resume: Resume::New,
            prompt: None,
            sidebar: true,
            panel: true,
            color: false,
            size,
            salt: 1,
            presets: vec![],
            zone: jiff::tz::TimeZone::UTC,
            notices: vec![],
        };
        let (app, done) = App::new(start, Now { mono: clock, wall_ms: 1_764_590_000_000 });
        Self { app, done, clock }
    }

    pub fn ready(size: (u16, u16)) -> Self {
        let mut rig = Self::new(size);
        rig.engine(EngineEvent::Loaded(Box::new(info())));
        rig
    }

    fn now(&self) -> Now {
        Now { mono: self.clock, wall_ms: 1_764_590_000_000 }
    }

    pub fn event(&mut self, event: Event) {
        let now = self.now();
        let effects = self.app.update(event, now);
        self.done.extend(effects);
    }

    pub fn engine(&mut self, event: EngineEvent) {
        self.event(Event::Engine(EngineNews::Event(event)));
    }

    pub fn wait(&mut self, seconds: f32) {
        self.clock += Duration::from_secs_f32(seconds);
        self.event(Event::Timer);
    }

    pub fn key(&mut self, code: KeyCode) {
        self.event(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    pub fn control(&mut self, c: char) {
        self.event(Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)));
    }

    pub fn text(&mut self, text: &str) {
        for c in text.chars() {
            self.key(KeyCode::Char(c));
        }
    }

    pub fn send(&mut self, text: &str) {
        self.text(text);
        self.key(KeyCode::Enter);
        self.save();
    }

    /// Answers every ticket that was asked for, as a store that works does.
    pub fn save(&mut self) {
        for effect in std::mem::take(&mut self.done) {
            if let Effect::Store(StoreRequest::Append { id, ticket: Some(ticket), .. }) = &effect {
                self.event(Event::Store(StoreEvent::Saved { id: id.clone(), ticket: *ticket }));
            }
            self.done.push(effect);
        }
    }

    /// The last thing that the engine was asked to generate.
    pub fn asked(&self) -> Option<(u64, Vec<Turn>)> {
        self.done.iter().rev().find_map(|e| match e {
            Effect::Engine(Request::Generate { job, prompt: Prompt::Chat { turns, .. }, .. }) => {
                Some((*job, turns.clone()))
            }
            _ => None,
        })
    }

    pub fn started(&mut self) -> u64 {
        let (job, _) = self.asked().expect("the engine was asked");
        let cells = Cells { system: 21, user: 16, assistant: 4, others: 0 };
        self.engine(EngineEvent::Started {
            job,
            prompt_tokens: 41,
            reused_tokens: 12,
            restored_tokens: 0,
            cells,
            seed: 7,
            because: None,
            notes: vec![],
        });
        self.engine(EngineEvent::Prefill { job, done: 29, total: 29, ms: 60.0 });
        job
    }

    pub fn token(&mut self, job: u64, n: u32, text: &str) {
        self.engine(EngineEvent::Token {
            job,
            text: text.into(),
            n,
            gap_ms: if n == 1 { 66.0 } else { 6.0 },
            record: None,
        });
    }

    pub fn finish(&mut self, job: u64, finish: Finish) {
        let usage = Usage { prompt_tokens: 41, reused_tokens: 12, completion_tokens: 3 };
        let timings = Timings {
            prefill_ms: 60.0,
            ttft_ms: 66.0,
            decode_ms: 12.0,
            tpot_ms: 6.0,
            itl_p95_ms: 6.5,
            tokens_per_second: 166.7,
            load_ms: 0.0,
        };
        let cells = Cells { system: 21, user: 16, assistant: 7, others: 0 };
        let sampling = Sampling::default();
        self.engine(EngineEvent::Finished {
            job,
            text: String::new(),
            finish,
            usage,
            timings,
            seed: 7,
            sampling: Box::new(sampling),
            cells,
            alternatives: Vec::new(),
            origin: None,
        });
    }

    pub fn answer(&mut self, question: &str, answer: &str) {
        self.send(question);
        let job = self.started();
        for (n, word) in (1..).zip(answer.split_inclusive(' ')) {
            self.token(job, n, word);
        }
        self.finish(job, Finish::Stop);
    }

    fn entries(&self) -> Vec<Entry> {
        let appended = self.done.iter().filter_map(|e| match e {
            Effect::Store(StoreRequest::Append { entries, .. }) => Some(entries.clone()),
            _ => None,
        });
        appended.flatten().collect()
    }

    fn texts(&self) -> Vec<String> {
        self.app.chat.conversation.path().iter().map(|m| m.text.clone()).collect()
    }

    fn notice(&self) -> String {
        self.app.notice.as_ref().map(|n| n.text.clone()).unwrap_or_default()
    }
}

const WIDE: (u16, u16) = (120, 40);

#[test]
fn the_first_key_makes_the_file_and_a_rest_saves_the_draft() {
    let mut rig = Rig::ready(WIDE);
    let made = |rig: &Rig| rig.done.iter().filter(|e| matches!(e, Effect::Store(StoreRequest::Create(_)))).count();
    assert_eq!(made(&rig), 0);
    rig.text("hel");
    assert_eq!(made(&rig), 1);
    assert!(rig.app.wake_at().is_some());
    rig.wait(1.0);
    assert!(rig.entries().contains(&Entry::Draft { text: "hel".into() }));
    rig.wait(10.0);
    assert_eq!(rig.app.wake_at(), None, "nothing waits any more");
}

#[test]
fn the_engine_is_asked_only_when_the_question_is_on_disk() {
    let mut rig = Rig::ready(WIDE);
    rig.text("hi there");
    rig.key(KeyCode::Enter);
    assert!(rig.entries().iter().any(|e| matches!(e, Entry::Message(m) if m.text == "hi there")));
    assert_eq!(rig.asked(), None);
    rig.save();
    let (_, turns) = rig.asked().unwrap();
    assert_eq!(turns, [Turn { role: Role::User, text: "hi there".into() }]);
    assert_eq!(rig.app.chat.title(), "hi there");
    assert!(rig.app.input.is_empty());
}

#[test]
fn a_failed_save_is_told_and_the_answer_comes_all_the_same() {
    let mut rig = Rig::ready(WIDE);
    rig.text("hi");
    rig.key(KeyCode::Enter);
    let id = rig.app.chat.conversation.id.clone();
    rig.event(Event::Store(StoreEvent::SaveFailed { id: id.clone(), reason: "Not saved: disk full".into() }));
    assert_eq!(rig.app.chat.banner.as_deref(), Some("Not saved: disk full"));
    assert!(rig.asked().is_some());
    rig.event(Event::Store(StoreEvent::SaveRecovered { id }));
    assert_eq!(rig.app.chat.banner, None);
}

#[test]
fn a_conversation_whose_file_was_taken_goes_on_in_a_copy() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    rig.token(job, 1, "Hello");
    let old = rig.app.chat.conversation.id.clone();
    rig.event(Event::Store(StoreEvent::Taken { id: old.clone(), reason: "another program has changed it".into() }));
    assert!(rig.notice().contains("Saved as a copy, because another program has changed it"));
    rig.token(job, 2, " there");
    rig.finish(job, Finish::Stop);
    rig.send("and on");
    // The fold of what was written to the copy is what is shown.
    let mut copy: Option<Conversation> = None;
    for effect in &rig.done {
        match effect {
            Effect::Store(StoreRequest::Create(made)) => copy = Some((**made).clone()),
            Effect::Store(StoreRequest::Append { id, entries, .. }) => {
                if let Some(copy) = copy.as_mut().filter(|c| c.id == *id) {
                    entries.iter().for_each(|e| copy.apply(e));
                }
            }
            _ => {}
        }
    }
    let copy = copy.unwrap();
    assert_ne!(copy.id, old);
    assert_eq!(copy.title.as_deref(), Some("hi (copy)"));
    assert_eq!(copy, rig.app.chat.conversation);
    assert_eq!(rig.texts()[1], "Hello there");
}

#[test]
fn a_question_sent_while_loading_is_answered_when_it_can_be() {
    let mut rig = Rig::new(WIDE);
    rig.send("early");
    assert_eq!(rig.asked(), None);
    rig.engine(EngineEvent::Loaded(Box::new(info())));
    assert!(rig.asked().is_some());
}

#[test]
fn an_answer_streams_is_checkpointed_and_keeps_its_figures() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    rig.token(job, 1, "Good ");
    rig.token(job, 2, "day");
    assert_eq!(rig.texts(), ["hi", "Good day"]);
    assert!(!rig.entries().iter().any(|e| matches!(e, Entry::Append { .. })));
    rig.wait(1.1);
    assert!(rig.entries().contains(&Entry::Append { id: 2, text: "Good day".into() }));
    rig.token(job, 3, "!");
    rig.finish(job, Finish::Stop);
    let entries = rig.entries();
    assert_eq!(entries[entries.len() - 2], Entry::Append { id: 2, text: "!".into() });
    assert!(
        matches!(&entries[entries.len() - 1], Entry::Done { id: 2, made } if made.seed == 7 && made.model == "SmolLM2-135M")
    );
    // What was written folds to what is shown.
    let mut folded =
        Conversation::new(rig.app.chat.conversation.id.clone(), rig.app.chat.conversation.created, Sampling::default());
    entries.iter().for_each(|e| folded.apply(e));
    assert_eq!(folded.messages, rig.app.chat.conversation.messages);
}

#[test]
fn escape_stops_and_the_text_stays() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    rig.token(job, 1, "Well");
    rig.key(KeyCode::Esc);
    assert!(rig.done.contains(&Effect::Engine(Request::Cancel { job })));
    rig.finish(job, Finish::Cancelled);
    assert_eq!(rig.texts(), ["hi", "Well"]);
    assert_eq!(mark(rig.app.chat.head().unwrap()), Some("stopped"));
    // Events of a job that ended mean nothing.
    rig.token(job, 2, " late");
    assert_eq!(rig.texts(), ["hi", "Well"]);
}

#[test]
fn a_stop_that_is_not_obeyed_is_told() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    rig.started();
    rig.key(KeyCode::Esc);
    rig.wait(2.1);
    assert!(rig.notice().contains("does not stop"), "{}", rig.notice());
    rig.key(KeyCode::F(5));
    assert!(rig.done.ends_with(&[]) && rig.done.contains(&Effect::StartEngine));
    assert_eq!(mark(rig.app.chat.head().unwrap()), Some("broken off"));
}

#[test]
fn by_hand_it_may_wait_long_and_choices_made_before_it_waits_are_taken_in_turn() {
    let mut rig = Rig::ready(WIDE);
    rig.text("/set mode hand");
    rig.key(KeyCode::Enter);
    rig.send("hi");
    let job = rig.started();
    rig.engine(EngineEvent::Waiting { job });
    rig.wait(60.0);
    assert_eq!(rig.notice(), "");
    rig.text("  ");
    let picked = |rig: &Rig| rig.done.iter().filter(|e| matches!(e, Effect::Engine(Request::Pick { .. }))).count();
    assert_eq!(picked(&rig), 1, "the second waits for the engine");
    rig.engine(EngineEvent::Waiting { job });
    assert!(picked(&rig) == 2 && !rig.app.is_by_hand());
    rig.wait(21.0);
    assert!(rig.notice().contains("20 seconds"), "it was asked for a token and says nothing");
}

#[test]
fn silence_is_told_once() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    rig.started();
    rig.wait(21.0);
    assert!(rig.notice().contains("20 seconds"));
    rig.wait(10.0);
    assert_eq!(rig.app.engine.wake_at().filter(|at| *at <= rig.clock), None);
}

#[test]
fn a_dead_engine_keeps_the_answer_and_one_key_brings_it_back() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    rig.token(job, 1, "Half an");
    rig.event(Event::Engine(EngineNews::Died {
        how: "ended by signal 6 (abort)".into(),
        last_words: vec!["GGML_ASSERT".into()],
    }));
    assert!(rig.notice().contains("signal 6") && rig.notice().contains("F5") && rig.notice().contains("GGML_ASSERT"));
    assert_eq!(rig.texts(), ["hi", "Half an"]);
    assert_eq!(mark(rig.app.chat.head().unwrap()), Some("broken off"));
    rig.send("more");
    let before = rig.asked();
    rig.key(KeyCode::F(5));
    rig.engine(EngineEvent::Loaded(Box::new(info())));
    assert_ne!(rig.asked(), before, "the question that waited is asked");
    assert_eq!(rig.asked().unwrap().1.len(), 3);
}

#[test]
fn a_model_that_cannot_be_loaded_is_a_sentence_and_another_one_can_be_chosen() {
    let mut rig = Rig::new(WIDE);
    rig.engine(EngineEvent::LoadFailed(Problem::new("It is cut off", "Fetch it again")));
    assert!(rig.notice().contains("It is cut off. Fetch it again"));
    rig.text("/model other");
    rig.key(KeyCode::Enter);
    assert!(rig.done.contains(&Effect::FindModel("other".into())));
    rig.event(Event::ModelFound(Ok("/m/other.gguf".into())));
    assert!(
        rig.done
            .iter()
            .any(|e| matches!(e, Effect::Engine(Request::Load { path, .. }) if path.ends_with("other.gguf")))
    );
}

#[test]
fn questions_wait_for_the_answer_and_can_be_taken_back() {
    let mut rig = Rig::ready(WIDE);
    rig.send("one");
    let job = rig.started();
    rig.send("two");
    rig.send("three");
    assert_eq!(rig.app.chat.queued, ["two", "three"]);
    rig.key(KeyCode::Up);
    assert_eq!(rig.app.input.text(), "three");
    rig.finish(job, Finish::Stop);
    rig.save();
    let (_, turns) = rig.asked().unwrap();
    assert_eq!(turns.last().unwrap().text, "two");
    assert!(rig.app.chat.queued.is_empty());
}

#[test]
fn another_answer_keeps_the_first() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("hi", "first");
    rig.key(KeyCode::F(7));
    rig.save();
    let job = rig.started();
    rig.token(job, 1, "second");
    rig.finish(job, Finish::Stop);
    assert_eq!(rig.texts(), ["hi", "second"]);
    assert_eq!(rig.app.chat.conversation.tries(3), [2, 3]);
    rig.key(KeyCode::Tab);
    rig.key(KeyCode::Left);
    assert_eq!(rig.texts(), ["hi", "first"]);
}

#[test]
fn an_edited_question_is_another_try() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("helo", "what?");
    rig.key(KeyCode::F(8));
    assert_eq!(rig.app.input.text(), "helo");
    assert_eq!(rig.texts(), [""; 0]);
    rig.key(KeyCode::Backspace);
    rig.send("lo");
    assert_eq!(rig.asked().unwrap().1, [Turn { role: Role::User, text: "hello".into() }]);
    assert_eq!(rig.app.chat.conversation.messages.len(), 3, "nothing is lost");
}

#[test]
fn continue_goes_on_in_the_same_message() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("count", "one two");
    rig.send("/continue");
    let (_, turns) = rig.asked().unwrap();
    assert_eq!(turns.last().unwrap().role, Role::Assistant);
    let job = rig.started();
    rig.token(job, 1, " three");
    rig.finish(job, Finish::Stop);
    assert_eq!(rig.texts(), ["count", "one two three"]);
}

#[test]
fn a_slider_steers_the_running_answer_and_is_saved() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    rig.key(KeyCode::F(2));
    rig.key(KeyCode::Left);
    let steered = rig.done.iter().any(|e| matches!(e, Effect::Engine(Request::Sampling { job: j, sampling }) if *j == job && sampling.mode == Mode::Greedy));
    assert!(steered);
    rig.wait(1.0);
    assert!(rig.entries().iter().any(|e| matches!(e, Entry::Sampling { sampling } if sampling.mode == Mode::Greedy)));
    // Greedy has other sliders than a draw.
    assert_eq!(rig.app.sliders()[1].name, "repeat_penalty");
    rig.key(KeyCode::Right);
    rig.key(KeyCode::Down);
    rig.text("1.5");
    rig.key(KeyCode::Enter);
    assert_eq!(rig.app.chat.conversation.sampling.temperature, 1.5);
    rig.text("9");
    rig.key(KeyCode::Enter);
    assert!(rig.notice().contains("from 0 to 2"));
    rig.key(KeyCode::Delete);
    assert_eq!(rig.app.chat.conversation.sampling.temperature, 0.8);
    // Another conversation has its own.
    rig.control('n');
    assert_eq!(rig.app.chat.conversation.sampling, Sampling::default());
}

#[test]
fn unknown_slash_commands_are_not_sent() {
    let mut rig = Rig::ready(WIDE);
    rig.send("/frobnicate");
    assert!(rig.notice().contains("/frobnicate"));
    assert_eq!((rig.asked(), rig.app.input.text()), (None, "/frobnicate".into()));
    rig.control('u');
    rig.send(" /etc is a folder");
    assert_eq!(rig.asked().unwrap().1[0].text, " /etc is a folder");
}

#[test]
fn slash_commands_set_knobs_by_the_names_of_the_field() {
    let mut rig = Rig::ready(WIDE);
    for line in ["/temp 0.3", "/set top-p 0.5", "/set parameter repeat_penalty 1.2", "/mode greedy"] {
        rig.send(line);
    }
    let s = &rig.app.chat.conversation.sampling;
    assert_eq!((s.temperature, s.top_p, s.repeat_penalty, s.mode), (0.3, 0.5, 1.2, Mode::Greedy));
    rig.text("/reg");
    rig.key(KeyCode::Tab);
    assert_eq!(rig.app.input.text(), "/regen ");
}

#[test]
fn control_c_twice_leaves() {
    let mut rig = Rig::ready(WIDE);
    rig.control('c');
    assert!(!rig.done.contains(&Effect::Quit));
    rig.wait(3.0);
    rig.control('c');
    assert!(!rig.done.contains(&Effect::Quit), "too long ago");
    rig.control('c');
    assert!(rig.done.contains(&Effect::Quit));
}

#[test]
fn leaving_keeps_the_running_answer() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    rig.token(job, 1, "Half");
    rig.control('q');
    let entries = rig.entries();
    assert!(entries.contains(&Entry::Append { id: 2, text: "Half".into() }));
    assert!(matches!(entries.last(), Some(Entry::Done { made, .. }) if made.finish == Finish::Cancelled));
    assert_eq!(rig.done.last(), Some(&Effect::Quit));
}

#[test]
fn an_answer_goes_on_in_a_conversation_that_is_left() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    let id = rig.app.chat.conversation.id.clone();
    rig.control('n');
    rig.token(job, 1, "unseen");
    rig.finish(job, Finish::Stop);
    let written = rig.done.iter().any(|e| matches!(e, Effect::Store(StoreRequest::Append { id: i, entries, .. }) if *i == id && entries.iter().any(|e| matches!(e, Entry::Append { text, .. } if text == "unseen"))));
    assert!(written);
    assert!(rig.done.contains(&Effect::Store(StoreRequest::Close(id))));
}

#[test]
fn a_conversation_of_another_program_is_only_read() {
    let mut rig = Rig::ready(WIDE);
    let mut other = Conversation::new(ConversationId::new(5, 5), 5, Sampling::default());
    other.title = Some("Other".into());
    let summary = crate::chat::Summary {
        id: other.id.clone(),
        title: "Other".into(),
        changed: 1,
        messages: 0,
        damage: None,
        filing: crate::chat::Filing::default(),
    };
    rig.event(Event::Store(StoreEvent::Listed(vec![summary])));
    rig.control('o');
    rig.key(KeyCode::Enter);
    assert!(rig.done.contains(&Effect::Store(StoreRequest::Open(other.id.clone()))));
    let access = Access::ReadOnly("another llmchat has it".into());
    rig.event(Event::Store(StoreEvent::Opened { conversation: Box::new(other), access, notes: vec![] }));
    rig.done.clear();
    rig.send("hi");
    rig.text("/temp 0.1");
    rig.key(KeyCode::Enter);
    assert!(
        rig.done.iter().all(|e| !matches!(e, Effect::Store(StoreRequest::Append { .. }) | Effect::Engine(_))),
        "{:?}",
        rig.done
    );
    assert!(rig.app.chat.banner.as_ref().unwrap().contains("Read only"));
}

#[test]
fn a_paste_is_one_edit_and_never_sends() {
    let mut rig = Rig::ready(WIDE);
    rig.event(Event::Paste("line one\nline two\n".repeat(20)));
    assert_eq!(rig.asked(), None);
    assert!(rig.app.input.typed().starts_with("[paste 1: 40 lines]"));
    rig.key(KeyCode::Enter);
    rig.save();
    assert_eq!(rig.asked().unwrap().1[0].text.lines().count(), 40);
}
