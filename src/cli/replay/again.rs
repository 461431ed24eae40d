//! How an answer is made again: its prompt, its settings, how much of it can be compared.

use crate::chat::{Conversation, Cut, Finish, Made, Message, Mode, Role, Sampling, Seed};
use crate::engine::protocol::{Prompt, Turn};

use super::compare::Answer;

/// What to do for one answer.
#[derive(Debug)]
pub struct Again<'a> {
    /// How it was made.
    pub made: &'a Made,
    /// What it may have been asked with, the likeliest first.
    pub prompts: Vec<Prompt>,
    /// The settings, seed included.
    pub sampling: Sampling,
    /// What is compared: the answer, or the part of it that these settings made.
    pub was: Answer,
    /// Its first tokens, which are part of the prompt: it was gone on with, or a token of it was taken otherwise.
    pub begun: usize,
    /// Something else than model and settings ended what is compared.
    pub open_end: bool,
    /// The settings were moved after so many tokens; what comes behind is not compared.
    pub moved: Option<usize>,
}

impl<'a> Again<'a> {
    /// What to do for an answer.
    ///
    /// # Errors
    /// Says why it cannot be made again.
    pub fn of(conversation: &Conversation, message: &'a Message) -> Result<Self, String> {
        let made = message.made.as_ref().ok_or("how it was made is not in the file")?;
        let before = made.earlier.first();
        let mut sampling = before.map_or(&made.sampling, |(_, sampling)| sampling).clone().sanitised();
        let broken_off = matches!(made.finish, Finish::Cancelled | Finish::Failed);
        match sampling.mode {
            Mode::Hand => return Err("its tokens were chosen by hand".to_owned()),
            Mode::Beam if broken_off || before.is_some() => {
                return Err("a beam search that was stopped or steered cannot be stopped in the same round".to_owned());
            }
            Mode::Sample if !sampling.is_greedy() && !knows_seed(made, &sampling) => {
                return Err("its seed is not known".to_owned());
            }
            _ => {}
        }
        sampling.seed = Seed(Some(sampling.seed.0.unwrap_or(made.seed)));
        // An answer that was broken off may not know its figures.
        let last_run = Some(made.usage).filter(|usage| usage.prompt_tokens > 0).map(|usage| usage.completion_tokens);
        let begun = last_run.map_or(0, |n| message.tokens.len().saturating_sub(n as usize));
        let bytes: usize = message.tokens.iter().take(begun).map(|t| t.bytes as usize).sum();
        let parts = message.text.split_at_checked(bytes);
        let (first, rest) = parts.ok_or("its text does not go with its tokens: it was changed in the file")?;
        let mut was = Answer { text: rest.into(), tokens: message.tokens[begun..].to_vec() };
        let moved = before.map(|(until, _)| *until as usize);
        if let Some(moved) = moved {
            was.shorten(moved);
        }
        let open_end = broken_off || moved.is_some();
        let known = Some(was.tokens.len()).filter(|n| open_end && *n > 0).or(moved);
        if let Some(known) = known {
            sampling.max_tokens = sampling.max_tokens.min(u32::try_from(known).unwrap_or(u32::MAX)).max(1);
        }
        if rest.is_empty() && broken_off {
            return Err("it was stopped before its first token".to_owned());
        }
        let prompts = prompts(conversation, message, first);
        Ok(Self { made, prompts, sampling, was, begun, open_end, moved })
    }
}

/// Older files say 0 where the seed was not known.
fn knows_seed(made: &Made, sampling: &Sampling) -> bool {
    made.origin.is_some() || made.seed != 0 || sampling.seed.0.is_some()
}

/// What an answer may have been asked with: as it would be sent now; or without a cut that was made since, or with
/// another one; or as raw text (`ask --raw`).
fn prompts(conversation: &Conversation, message: &Message, begin: &str) -> Vec<Prompt> {
    let mut path = conversation.copy_of(message.id, false, conversation.id.clone(), 0);
    let cuts = std::mem::take(&mut path.cuts);
    let places: Vec<Option<Cut>> = cuts.iter().rev().cloned().map(Some).chain([None]).collect();
    let sent = |cuts: Vec<Cut>| {
        let mut prompt = Prompt::to(&Conversation { cuts, ..path.clone() }, message.id);
        if let Prompt::Chat { turns, .. } = &mut prompt {
            turns.pop();
            if !begin.is_empty() {
                turns.push(Turn { role: Role::Assistant, text: begin.to_owned() });
            }
        }
        prompt
    };
    let mut prompts = vec![sent(cuts.clone())];
    prompts.extend(places.into_iter().map(|cut| sent(cut.into_iter().collect())));
    prompts.dedup();
    if let ([question, _], "") = (path.path().as_slice(), begin) {
        prompts.push(Prompt::Raw(question.text.clone()));
    }
    prompts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{ConversationId, Entry, Timings, TokenRecord, Usage};

    fn made(n: u32, finish: Finish) -> Made {
        Made {
            model: "m".into(),
            sampling: Sampling { seed: Seed(None), ..Sampling::default() },
            seed: 7,
            finish,
            usage: Usage { prompt_tokens: 9, completion_tokens: n, ..Usage::default() },
            timings: Timings::default(),
            score: None,
            earlier: Vec::new(),
            looped: false,
            origin: None,
        }
    }

    fn tokens(bytes: &[u32]) -> Vec<TokenRecord> {
        bytes.iter().map(|n| TokenRecord { bytes: *n, logprob: -1.0, rank: 1, others: Vec::new() }).collect()
    }

    /// A question and two answers in a line, and of the last one how it was made.
    fn line(text: &str, bytes: &[u32], made: Made) -> Conversation {
        let mut c = Conversation::new(ConversationId::new(1, 1), 0, Sampling::default());
        for (id, role, text) in [(1, Role::User, "a"), (2, Role::Assistant, "b"), (3, Role::User, "c")] {
            c.apply(&Entry::Message(Message::new(id, (id > 1).then(|| id - 1), role, text, 0)));
        }
        let answer = Message::new(4, Some(3), Role::Assistant, text, 0);
        c.apply(&Entry::Message(Message { made: Some(made), tokens: tokens(bytes), ..answer }));
        c
    }

    fn again(c: &Conversation) -> Result<Again<'_>, String> {
        Again::of(c, c.message(4).unwrap())
    }

    fn texts(prompt: &Prompt) -> Vec<&str> {
        match prompt {
            Prompt::Chat { turns, .. } => turns.iter().map(|t| t.text.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn an_answer_is_asked_for_with_its_seed_and_what_leads_to_it() {
        let c = line("one two", &[3, 4], made(2, Finish::Stop));
        let again = again(&c).unwrap();
        assert_eq!((again.sampling.seed, again.begun, again.open_end), (Seed(Some(7)), 0, false));
        assert_eq!(again.sampling.max_tokens, Sampling::default().max_tokens);
        assert_eq!(again.prompts.iter().map(texts).collect::<Vec<_>>(), [["a", "b", "c"]]);
    }

    #[test]
    fn what_was_gone_on_with_begins_where_it_went_on() {
        let c = line("one two three", &[3, 4, 6], made(1, Finish::Stop));
        let again = again(&c).unwrap();
        assert_eq!((again.begun, again.was.text.as_slice()), (2, &b" three"[..]));
        assert_eq!(texts(&again.prompts[0]), ["a", "b", "c", "one two"]);
    }

    #[test]
    fn what_was_stopped_or_steered_is_compared_as_far_as_it_can_be() {
        let c = line("one two", &[3, 4], made(2, Finish::Cancelled));
        let stopped = again(&c).unwrap();
        assert_eq!((stopped.open_end, stopped.sampling.max_tokens), (true, 2));
        let before = Sampling { top_k: 3, ..Sampling::default() };
        let c = line("one two", &[3, 4], Made { earlier: vec![(1, before)], ..made(2, Finish::Stop) });
        let steered = again(&c).unwrap();
        assert_eq!((steered.moved, steered.sampling.top_k, steered.sampling.max_tokens), (Some(1), 3, 1));
        assert_eq!(steered.was.text, b"one");
    }

    #[test]
    fn cuts_since_then_and_raw_texts_are_tried_too() {
        let mut c = line("one", &[3], made(1, Finish::Stop));
        c.apply(&Entry::Cut(Cut { after: 2, tokens: 1, summary: None }));
        let again = again(&c).unwrap();
        assert_eq!(again.prompts.iter().map(texts).collect::<Vec<_>>(), [vec!["c"], vec!["a", "b", "c"]]);
        let first = Message { made: Some(made(1, Finish::Stop)), ..Message::new(2, Some(1), Role::Assistant, "b", 0) };
        let raw = Again::of(&c, &first).unwrap().prompts.pop();
        assert_eq!(raw, Some(Prompt::Raw("a".into())));
    }

    #[test]
    fn what_cannot_be_made_again_says_why() {
        let by_hand = Sampling { mode: Mode::Hand, ..Sampling::default() };
        let beam = Sampling { mode: Mode::Beam, ..Sampling::default() };
        let cases = [
            (Made { sampling: by_hand, ..made(1, Finish::Stop) }, "by hand"),
            (Made { sampling: beam, ..made(1, Finish::Cancelled) }, "beam search"),
            (Made { seed: 0, ..made(1, Finish::Failed) }, "seed"),
        ];
        for (made, why) in cases {
            let c = line("one", &[3], made);
            let error = again(&c).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let c = line("one", &[3], Made { seed: 0, sampling: greedy, ..made(1, Finish::Stop) });
        assert!(again(&c).is_ok(), "a seed that does not count need not be known");
        let c = line("éone", &[1, 3], made(1, Finish::Stop));
        assert!(again(&c).unwrap_err().contains("changed in the file"));
    }
}
