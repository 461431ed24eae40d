//! How an answer was made, in few words: for the rows of the tree and for what stands side by side.

use super::chat::mark;
use super::full::counted;
use super::tokens::perplexity;
use crate::chat::{Knob, Made, Message, Mode, first_knobs};

/// How large a message is: tokens of an answer, characters of a question.
pub fn size(message: &Message) -> String {
    match &message.made {
        Some(made) => format!("{} tok", counted(made.usage.completion_tokens)),
        None => format!("{} ch", counted(u32::try_from(message.text.chars().count()).unwrap_or(u32::MAX))),
    }
}

/// The settings that an answer was made with: those that matter first in its mode.
pub fn how(made: &Made) -> String {
    let knobs = first_knobs(made.sampling.mode).iter().map(|knob| {
        let spec = knob.spec();
        let value = spec.format(&made.sampling);
        if *knob == Knob::Mode { value } else { format!("{} {value}", spec.label) }
    });
    knobs.collect::<Vec<_>>().join(" · ")
}

/// Its seed, where one counts.
pub fn seed(made: &Made) -> Option<u32> {
    matches!(made.sampling.mode, Mode::Sample | Mode::Hand).then_some(made.seed)
}

/// What a row of the tree says of a message, the most telling first: size, how it was made, scores, its end.
pub fn glance(message: &Message) -> Vec<String> {
    let mut told = vec![size(message)];
    if let Some(made) = &message.made {
        let mode = Knob::Mode.spec().format(&made.sampling);
        let with = match made.sampling.mode {
            Mode::Sample | Mode::Hand => format!(" {}", Knob::Temperature.spec().format(&made.sampling)),
            Mode::Beam => format!(" {}", Knob::Beams.spec().format(&made.sampling)),
            Mode::Greedy => String::new(),
        };
        told.push(format!("{mode}{with}"));
        told.extend(made.score.map(|score| format!("score {score:.3}")));
    }
    let surprise = perplexity(message.tokens.iter().map(|t| t.logprob));
    told.extend(surprise.map(|ppl| format!("ppl {ppl:.1}")));
    // What a longer hint says is cut off: here it only marks the row.
    told.extend(mark(message).map(|m| m.split(';').next().unwrap_or(m).to_owned()));
    told
}
