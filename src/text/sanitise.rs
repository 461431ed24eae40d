//! Text of models, files and people, made harmless: nothing in it can move the cursor, change the terminal
//! or turn the direction of what stands around it.

/// Columns from one tab stop to the next.
const TAB: usize = 4;

/// Makes text harmless piece by piece; any split of a text gives the same result.
#[derive(Clone, Debug, Default)]
pub struct Sanitiser {
    /// Characters since the last line break, for tabs.
    column: usize,
    /// The last character was a carriage return, which a line feed may follow.
    returned: bool,
}

impl Sanitiser {
    /// Appends the harmless form of `text` to `out`.
    pub fn push(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            let after_return = std::mem::take(&mut self.returned);
            match c {
                '\n' if after_return => {}
                '\n' | '\r' | '\u{2028}' | '\u{2029}' | '\u{b}' | '\u{c}' | '\u{85}' => {
                    self.returned = c == '\r';
                    self.column = 0;
                    out.push('\n');
                }
                '\t' => {
                    let n = TAB - self.column % TAB;
                    out.extend(std::iter::repeat_n(' ', n));
                    self.column += n;
                }
                c => {
                    if let Some(shown) = visible(c) {
                        out.push(shown);
                        self.column += 1;
                    }
                }
            }
        }
    }
}

/// What is shown of a character: itself, a picture of a control, or nothing.
fn visible(c: char) -> Option<char> {
    match u32::from(c) {
        // Control Pictures (Unicode block 2400) stand for C0; C1 has no pictures.
        code @ 0..=0x1f => char::from_u32(0x2400 + code),
        0x7f => Some('\u{2421}'),
        0x80..=0x9f => Some('\u{fffd}'),
        // Direction marks, overrides and isolates; invisible operators; deprecated format characters; tags;
        // noncharacters, which mean nothing to anybody.
        0x061c
        | 0x200b
        | 0x200e..=0x200f
        | 0x202a..=0x202e
        | 0x2060..=0x206f
        | 0xfeff
        | 0xfff9..=0xfffb
        | 0xfdd0..=0xfdef
        | 0xe0000..=0xe007f => None,
        code => (code & 0xfffe != 0xfffe).then_some(c),
    }
}

/// The harmless form of a whole text.
pub fn sanitise(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    Sanitiser::default().push(text, &mut out);
    out
}

/// The harmless form of a text that must stay on one line, such as a title.
pub fn sanitise_line(text: &str) -> String {
    sanitise(text).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_and_directions_are_gone() {
        assert_eq!(sanitise("a\x1b[31mb\x07"), "a␛[31mb␇");
        assert_eq!(sanitise("x\u{202e}y\u{2066}z\u{200b}"), "xyz");
        assert_eq!(sanitise("a\u{9b}31m\u{7f}"), "a\u{fffd}31m␡");
        assert_eq!(sanitise("a\r\nb\rc\u{2028}d"), "a\nb\nc\nd");
        assert_eq!(sanitise("\tx\n12\ty"), "    x\n12  y");
        assert_eq!(sanitise_line("a\nb"), "a b");
        assert_eq!(sanitise("👩‍👩‍👧 é"), "👩‍👩‍👧 é", "joiners that make one picture stay");
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left_and_splits_do_not_matter(text in any::<String>(), at in any::<proptest::sample::Index>()) {
            let whole = sanitise(&text);
            prop_assert!(whole.chars().all(|c| c == '\n' || !c.is_control()));
            let turns = |c| matches!(u32::from(c), 0x202a..=0x202e | 0x2066..=0x2069);
            prop_assert!(!whole.contains(turns));
            let ends: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
            let (left, right) = text.split_at(ends[at.index(ends.len())]);
            let mut out = String::new();
            let mut sanitiser = Sanitiser::default();
            sanitiser.push(left, &mut out);
            sanitiser.push(right, &mut out);
            prop_assert_eq!(out, whole);
        }
    }
}
