use super::tests::{Rig, info};
use super::*;
use crate::chat::{Content, Cut, Entry, Finish, Overflow, Role, StoreRequest};
use crate::engine::protocol::{EngineEvent, ModelInfo, Problem, Prompt, Request, Size, Turn};

const WIDE: (u16, u16) = (120, 40);

/// A chat whose model has so many cells, with so many answered questions.
fn rig(n_ctx: u32, answered: usize) -> Rig {
    let mut rig = Rig::new(WIDE);
    rig.engine(EngineEvent::Loaded(Box::new(ModelInfo { n_ctx, ..info() })));
    for n in 0..answered {
        rig.answer(&format!("question {n}"), &format!("answer {n}"));
    }
    rig
}

fn prompt(rig: &Rig) -> (u64, String, Vec<Turn>) {
    let asked = rig.done.iter().rev().find_map(|e| match e {
        Effect::Engine(Request::Generate { job, prompt: Prompt::Chat { system, turns }, .. }) => {
            Some((*job, system.clone(), turns.clone()))
        }
        _ => None,
    });
    asked.unwrap()
}

/// Refuses what was asked last: every turn has so many tokens.
pub fn refuse(rig: &mut Rig, each: u32, n_ctx: u32, free_bytes: Option<u64>) {
    let (job, _, turns) = prompt(rig);
    let size = size(turns.len(), each, n_ctx, free_bytes);
    let problem = Problem::new(format!("The conversation has {} tokens", size.tokens), "Shorten it");
    rig.engine(EngineEvent::Failed { job, problem, size: Some(size) });
    rig.save();
}

fn size(turns: usize, each: u32, n_ctx: u32, free_bytes: Option<u64>) -> Size {
    let tokens = each * u32::try_from(turns).unwrap() + 12;
    Size { tokens, n_ctx, turns: vec![each; turns], free_bytes }
}

fn entries(rig: &Rig) -> Vec<Entry> {
    let appended = rig.done.iter().filter_map(|e| match e {
        Effect::Store(StoreRequest::Append { entries, .. }) => Some(entries.clone()),
        _ => None,
    });
    appended.flatten().collect()
}

fn texts(turns: &[Turn]) -> Vec<&str> {
    turns.iter().map(|t| t.text.as_str()).collect()
}

fn notice(rig: &Rig) -> String {
    rig.app.notice.as_ref().map(|n| n.text.clone()).unwrap_or_default()
}

fn told(rig: &Rig, how: Overflow) -> String {
    match &rig.app.overlay {
        Some(Overlay::Full(full)) => full.told(how),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_too_long_is_asked_with_numbers_and_dropping_is_done_and_remembered() {
    let mut rig = rig(400, 3);
    rig.send("question 3");
    refuse(&mut rig, 60, 400, Some(1 << 30));
    // 7 × 60 + 12 tokens; two turns less are 312, which leaves 88: less than a quarter of the context.
    assert_eq!(
        told(&rig, Overflow::Drop),
        "drop the oldest turns: 4 messages of 240 tokens go, the last 3 stay, 208 tokens are left for the answer"
    );
    assert!(told(&rig, Overflow::Larger).starts_with("a larger context: 800 tokens, "), "{rig:?}", rig = rig.app);
    rig.key(KeyCode::Char('1'));
    rig.save();
    assert!(rig.app.overlay.is_none());
    let (_, _, turns) = prompt(&rig);
    assert_eq!(texts(&turns), ["question 2", "answer 2", "question 3"]);
    assert_eq!(notice(&rig), "4 messages are no longer sent (240 tokens). /uncut sends them again");
    let kept = entries(&rig);
    assert!(kept.contains(&Entry::Cut(Cut { after: 4, tokens: 240, summary: None })));
    assert!(kept.contains(&Entry::Overflow { overflow: Overflow::Drop }));
    assert_eq!(rig.app.chat.conversation.messages.len(), 7, "nothing is lost");
    assert_eq!(rig.app.cut_line().unwrap(), "4 messages above are no longer sent (240 tokens)");

    // From now on by itself, with a notice.
    let job = rig.started();
    rig.token(job, 1, "answer 3");
    rig.finish(job, Finish::Stop);
    rig.answer("question 4", "answer 4");
    rig.send("question 5");
    refuse(&mut rig, 60, 400, None);
    assert!(rig.app.overlay.is_none());
    assert_eq!(texts(&prompt(&rig).2), ["question 4", "answer 4", "question 5"]);
    assert_eq!(notice(&rig), "8 messages are no longer sent (480 tokens). /uncut sends them again");
}

#[test]
fn more_or_fewer_turns_can_be_kept() {
    let mut rig = rig(400, 4);
    rig.send("question 4");
    refuse(&mut rig, 44, 400, None);
    let kept = |rig: &Rig| told(rig, Overflow::Drop).split("the last ").nth(1).unwrap()[..1].to_owned();
    assert_eq!(kept(&rig), "5");
    rig.key(KeyCode::Right);
    assert_eq!(kept(&rig), "7");
    rig.key(KeyCode::Right);
    assert_eq!(kept(&rig), "7", "nine do not fit");
    for _ in 0..5 {
        rig.key(KeyCode::Left);
    }
    assert_eq!(kept(&rig), "o", "the newest question always stays, the last one");
    rig.key(KeyCode::Enter);
    rig.save();
    assert_eq!(texts(&prompt(&rig).2), ["question 4"]);
}

#[test]
fn escape_leaves_everything_as_it_is() {
    let mut rig = rig(400, 3);
    rig.send("question 3");
    let before = rig.app.chat.conversation.clone();
    let asked = prompt(&rig).0;
    refuse(&mut rig, 60, 400, None);
    rig.key(KeyCode::Esc);
    assert!(rig.app.overlay.is_none());
    assert_eq!(rig.app.chat.conversation, before);
    assert_eq!(prompt(&rig).0, asked, "nothing is sent");
    assert!(!rig.app.is_busy());
    assert!(notice(&rig).contains("F8"), "{}", notice(&rig));
}

#[test]
fn a_question_alone_can_only_get_a_larger_context() {
    let mut rig = rig(400, 0);
    rig.send("much too long");
    refuse(&mut rig, 500, 400, Some(1 << 30));
    assert_eq!(told(&rig, Overflow::Drop), "drop the oldest turns: nothing is before the newest question");
    rig.key(KeyCode::Char('1'));
    assert!(matches!(rig.app.overlay, Some(Overlay::Full(_))), "what cannot be done is not done");
    rig.key(KeyCode::Enter);
    let load = rig.done.iter().rev().find_map(|e| match e {
        Effect::Engine(Request::Load { params, .. }) => Some(params.clone()),
        _ => None,
    });
    assert_eq!(load.unwrap().n_ctx, Some(800));
    rig.engine(EngineEvent::Loaded(Box::new(ModelInfo { n_ctx: 800, ..info() })));
    assert_eq!(texts(&prompt(&rig).2), ["much too long"], "it is sent again by itself");
}

#[test]
fn a_larger_context_must_fit_the_memory_and_beyond_the_trained_length_needs_a_yes() {
    let mut rig = rig(8192, 1);
    rig.send("question 1");
    refuse(&mut rig, 4000, 8192, Some(1 << 20));
    assert_eq!(
        told(&rig, Overflow::Larger),
        "a larger context: one of 16,384 tokens needs 180.0 MiB more, and 1.0 MiB of memory are free"
    );
    rig.key(KeyCode::Esc);
    rig.send("question 2");
    refuse(&mut rig, 3000, 8192, Some(1 << 30));
    assert!(told(&rig, Overflow::Larger).contains("16,384 tokens, more than the 8,192 that the model was trained on"));
    rig.key(KeyCode::Char('3'));
    assert!(matches!(rig.app.overlay, Some(Overlay::Beyond { n_ctx: 16_384, .. })));
    let loads = |rig: &Rig| rig.done.iter().filter(|e| matches!(e, Effect::Engine(Request::Load { .. }))).count();
    let before = loads(&rig);
    rig.key(KeyCode::Enter);
    assert_eq!(loads(&rig), before, "Enter is no yes");
    rig.key(KeyCode::Char('y'));
    assert_eq!(loads(&rig), before + 1);
    let last = rig.done.iter().rev().find_map(|e| match e {
        Effect::Engine(Request::Load { params, .. }) => Some(params.clone()),
        _ => None,
    });
    assert!(last.is_some_and(|p| p.beyond_trained && p.n_ctx == Some(16_384)));
}

#[test]
fn a_context_that_cannot_be_made_leads_back_to_the_one_before_and_is_not_tried_again() {
    let mut rig = rig(400, 0);
    rig.send("much too long");
    refuse(&mut rig, 500, 400, None);
    rig.key(KeyCode::Char('3'));
    rig.engine(EngineEvent::LoadFailed(Problem::new("The memory is too small", "Take less")));
    rig.engine(EngineEvent::Loaded(Box::new(ModelInfo { n_ctx: 400, ..info() })));
    assert!(notice(&rig).contains("The memory is too small"));
    refuse(&mut rig, 500, 400, None);
    assert_eq!(told(&rig, Overflow::Larger), "a larger context: one of 800 tokens could not be made");
}

#[test]
fn a_summary_is_written_in_parts_and_stands_in_the_place_of_the_oldest() {
    let mut rig = rig(400, 4);
    rig.app.chat.conversation.system = "Be brief.".into();
    rig.send("question 4");
    refuse(&mut rig, 60, 400, None);
    rig.key(KeyCode::Char('2'));
    let mut parts = Vec::new();
    while rig.app.chat.conversation.cuts.is_empty() {
        let (job, system, turns) = prompt(&rig);
        assert_eq!(system, "");
        assert!(rig.app.is_busy() && notice(&rig).contains("summarised"), "{}", notice(&rig));
        parts.push(turns[0].text.clone());
        rig.started();
        rig.token(job, 1, " They spoke");
        rig.token(job, 2, " of numbers.");
        rig.finish(job, Finish::Stop);
        rig.save();
    }
    assert!(parts.len() > 1 && !parts[0].contains("They spoke") && parts[1].contains("They spoke of numbers."));
    let all = parts.join("\n");
    for n in 0..3 {
        assert!(
            all.contains(&format!("User: question {n}")) && all.contains(&format!("Assistant: answer {n}")),
            "{all}"
        );
    }
    let (_, system, turns) = prompt(&rig);
    assert_eq!(system, "Be brief.\n\nSummary of the conversation before:\nThey spoke of numbers.");
    assert_eq!(texts(&turns), ["question 3", "answer 3", "question 4"]);
    assert!(rig.app.cut_line().unwrap().contains("sent as a summary"));
    assert_eq!(rig.app.chat.conversation.messages.len(), 9, "no message came of the summary");
}

#[test]
fn a_summary_is_made_of_the_words_of_files_and_not_of_their_marks() {
    let mut rig = rig(400, 4);
    let notes = Content::new("notes.txt", "The heron waits.".into());
    rig.app.chat.conversation.messages[0].text = notes.mark(None);
    rig.app.chat.conversation.apply(&Entry::Content(notes));
    rig.send("question 4");
    refuse(&mut rig, 60, 400, None);
    rig.key(KeyCode::Char('2'));
    let (_, _, turns) = prompt(&rig);
    assert!(turns[0].text.contains("The heron waits."), "{}", turns[0].text);
}

#[test]
fn a_stopped_summary_changes_nothing() {
    let mut rig = rig(400, 4);
    rig.send("question 4");
    let before = rig.app.chat.conversation.messages.clone();
    refuse(&mut rig, 60, 400, None);
    rig.key(KeyCode::Char('2'));
    let job = rig.started();
    rig.token(job, 1, " They");
    rig.key(KeyCode::Esc);
    assert!(rig.done.contains(&Effect::Engine(Request::Cancel { job })));
    rig.finish(job, Finish::Cancelled);
    assert_eq!(rig.app.chat.conversation.messages, before);
    assert!(rig.app.chat.conversation.cuts.is_empty() && !rig.app.is_busy());
    assert!(notice(&rig).contains("nothing has changed"));
}

#[test]
fn a_model_without_a_template_is_not_asked_for_a_summary() {
    let mut rig = rig(400, 3);
    rig.engine(EngineEvent::Loaded(Box::new(ModelInfo { n_ctx: 400, has_template: false, ..info() })));
    rig.send("question 3");
    refuse(&mut rig, 60, 400, None);
    assert!(told(&rig, Overflow::Summarise).contains("no chat template"));
}

#[test]
fn an_answer_that_fills_the_context_is_kept_and_goes_on_after_the_choice() {
    let mut rig = rig(400, 3);
    rig.send("question 3");
    let job = rig.started();
    rig.token(job, 1, "Half an");
    rig.text("next");
    rig.key(KeyCode::Enter);
    rig.save();
    rig.finish(job, Finish::ContextFull);
    assert_eq!(rig.app.chat.queued, ["next"], "it still waits");
    let measure = rig.done.iter().rev().find_map(|e| match e {
        Effect::Engine(Request::Measure { job, prompt: Prompt::Chat { turns, .. } }) => Some((*job, turns.len())),
        _ => None,
    });
    let (measure, turns) = measure.unwrap();
    rig.engine(EngineEvent::Measured { job: measure, size: size(turns, 49, 400, None), prompt_sha256: String::new() });
    rig.key(KeyCode::Char('1'));
    rig.save();
    let (job, _, turns) = prompt(&rig);
    assert_eq!(texts(&turns), ["question 2", "answer 2", "question 3", "Half an"]);
    rig.engine(EngineEvent::Started {
        job,
        prompt_tokens: 9,
        reused_tokens: 0,
        restored_tokens: 0,
        cells: crate::engine::protocol::Cells::default(),
        seed: 1,
        because: None,
        notes: vec![],
    });
    rig.token(job, 1, " answer.");
    rig.finish(job, Finish::Stop);
    rig.save();
    assert_eq!(rig.app.chat.conversation.message(8).unwrap().text, "Half an answer.");
    assert_eq!(prompt(&rig).2.last().unwrap().text, "next", "now it is sent");
}

#[test]
fn somebody_who_types_keeps_the_keys() {
    let mut rig = rig(400, 3);
    rig.send("question 3");
    rig.text("1 mor");
    refuse(&mut rig, 60, 400, None);
    assert!(rig.app.overlay.is_none());
    assert!(notice(&rig).contains("/overflow shows what can be done"));
    assert_eq!(rig.app.input.text(), "1 mor");
}

#[test]
fn a_cut_is_shown_and_undone_and_then_it_is_asked_again() {
    let mut rig = rig(400, 3);
    rig.send("question 3");
    refuse(&mut rig, 60, 400, None);
    rig.key(KeyCode::Char('1'));
    rig.save();
    let job = rig.started();
    rig.token(job, 1, "yes");
    rig.finish(job, Finish::Stop);
    rig.send("/cut");
    assert!(matches!(&rig.app.overlay, Some(Overlay::Text { lines, .. }) if lines[0].contains("first 4 messages")));
    rig.key(KeyCode::Esc);
    rig.send("/uncut");
    assert_eq!(rig.app.cut_line(), None);
    assert_eq!(rig.app.chat.conversation.overflow, Overflow::Ask);
    rig.send("question 4");
    assert_eq!(prompt(&rig).2.len(), 9, "all of it is sent");
}

#[test]
fn overflow_is_set_by_its_name_and_offered_by_hand() {
    let mut rig = rig(400, 2);
    rig.send("/overflow shift");
    assert!(notice(&rig).contains("must be one of ask, drop, summarise, larger"), "{}", notice(&rig));
    rig.event(Event::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    rig.app.input.set("");
    rig.send("/overflow larger");
    assert_eq!(rig.app.chat.conversation.overflow, Overflow::Larger);
    rig.send("/compact");
    let job = rig.done.iter().rev().find_map(|e| match e {
        Effect::Engine(Request::Measure { job, .. }) => Some(*job),
        _ => None,
    });
    rig.engine(EngineEvent::Measured { job: job.unwrap(), size: size(4, 20, 400, None), prompt_sha256: String::new() });
    let asked = prompt(&rig).0;
    rig.key(KeyCode::Char('1'));
    rig.save();
    assert_eq!(rig.app.chat.conversation.cuts.len(), 1);
    assert_eq!(rig.app.chat.conversation.overflow, Overflow::Larger, "what is chosen by hand is done once");
    assert_eq!(prompt(&rig).0, asked, "there was nothing to answer");
    assert_eq!(rig.app.chat.conversation.path().last().unwrap().role, Role::Assistant);
}
