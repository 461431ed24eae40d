//! Marks around what messages say, so that the rendered text tells which bytes are whose.

use std::ops::Range;

use super::super::guard::Guard;
use crate::chat::Role;

/// Begins a message's text. Noncharacters, as [`super::CUT`].
const OPEN: char = '\u{FDD1}';
/// End a message's text, by whose it is.
const CLOSE: [(char, Role); 3] = [('\u{FDD2}', Role::System), ('\u{FDD3}', Role::User), ('\u{FDD4}', Role::Assistant)];

/// How a message's text is written for the template.
#[derive(Clone, Copy, Debug)]
pub enum Mark<'g> {
    /// As it is.
    None,
    /// With marks at both ends, inside of blanks that a template may trim.
    Ends,
    /// With the guard's cuts.
    Sealed(&'g Guard),
}

impl Mark<'_> {
    /// The clean text of that role with these marks.
    pub fn on(self, role: Role, text: &str) -> String {
        match self {
            Self::None => text.to_owned(),
            Self::Sealed(guard) => guard.sealed(text),
            Self::Ends => {
                let core = text.trim();
                if core.is_empty() {
                    return text.to_owned();
                }
                let from = text.len() - text.trim_start().len();
                let close = CLOSE.iter().find(|(_, r)| *r == role).map_or(CLOSE[1].0, |(c, _)| *c);
                format!("{}{OPEN}{core}{close}{}", &text[..from], &text[from + core.len()..])
            }
        }
    }
}

/// What the marks of a rendered text tell.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// The text without marks.
    pub text: String,
    /// The bytes that came from messages, in their order.
    pub spans: Vec<Range<usize>>,
    /// Whether every beginning has its end: if not, a template took messages apart.
    pub whole: bool,
    ends: Vec<(usize, Role)>,
}

impl Found {
    /// Reads the marks of a text and takes them out.
    pub fn of(marked: &str) -> Self {
        let mut found =
            Self { text: String::with_capacity(marked.len()), spans: Vec::new(), whole: true, ends: Vec::new() };
        let mut open = None;
        for c in marked.chars() {
            let at = found.text.len();
            if c == OPEN {
                found.whole &= open.replace(at).is_none();
            } else if let Some((_, role)) = CLOSE.iter().find(|(close, _)| *close == c) {
                match open.take() {
                    Some(start) => found.spans.push(start..at),
                    None => found.whole = false,
                }
                found.ends.push((at, *role));
            } else {
                found.text.push(c);
            }
        }
        found.whole &= open.is_none();
        found
    }

    /// Whose the text is, up to each end.
    pub fn owners(&self) -> Vec<(usize, Role)> {
        let mut owners = Vec::with_capacity(self.ends.len() + 2);
        if let (Some(span), Some((_, role))) = (self.spans.first(), self.ends.first())
            && *role != Role::System
            && span.start > 0
        {
            owners.push((span.start, Role::System));
        }
        owners.extend(&self.ends);
        owners.push((self.text.len(), Role::Assistant));
        owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_inside_of_blanks_and_come_out_again() {
        let marked = format!("[{}]{}!", Mark::Ends.on(Role::User, " hi\n"), Mark::Ends.on(Role::Assistant, "yo"));
        let found = Found::of(&marked);
        assert_eq!((found.text.as_str(), found.whole), ("[ hi\n]yo!", true));
        assert_eq!(found.spans, [2..4, 6..8]);
        let owners = [(2, Role::System), (4, Role::User), (8, Role::Assistant), (9, Role::Assistant)];
        assert_eq!(found.owners(), owners);
        assert_eq!(Mark::Ends.on(Role::User, " \n"), " \n");
    }

    #[test]
    fn a_message_taken_apart_is_noticed() {
        let marked = Mark::Ends.on(Role::User, "hi there");
        for torn in [&marked[3..], &marked[..marked.len() - 3], &format!("{marked}{}", &marked[3..])] {
            assert!(!Found::of(torn).whole, "{torn:?}");
        }
    }
}
