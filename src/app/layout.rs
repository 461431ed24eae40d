//! Where everything stands on the screen: a pure function of its size and of what is shown.
//!
//! ```text
//! ┌ list ──┬ title ──────────────┬ panel ───┐
//! │        │ messages            │          │
//! │        │                     │          │
//! │        ├─────────────────────┤          │
//! │        │ input               │          │
//! ├ folded panel, where the panel has no room ┤
//! └ hints or what is to be said ─────────────┘
//! ```

use ratatui::layout::Rect;

/// Below this nothing can be shown but a notice.
pub const SMALLEST: (u16, u16) = (20, 5);
/// From this width on the panel has room beside the messages.
const PANEL_FROM: u16 = 100;
const PANEL: u16 = 36;
/// Lines of what is to be said, at most.
const MOST_FOOTER: u16 = 3;
/// The list has room where so much is left for the messages.
const MESSAGES: u16 = 44;
const LIST: u16 = 24;

/// What is asked to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The list of conversations.
    pub list: bool,
    /// The list has the focus: it is shown even where it has no room of its own.
    pub list_focus: bool,
    /// The panel.
    pub panel: bool,
    /// Lines of the footer, at least one.
    pub footer: u16,
    /// Lines for the beams of a search; 0 where there is none.
    pub beams: u16,
    /// The sliders have the focus: the panel is shown even where it has no room of its own.
    pub panel_focus: bool,
}

/// The parts of the screen. One of height or width 0 is not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// The list of conversations.
    pub list: Rect,
    /// The title of the conversation.
    pub title: Rect,
    /// The messages.
    pub messages: Rect,
    /// The beams of a search, under the messages.
    pub beams: Rect,
    /// The input box, its upper line included.
    pub input: Rect,
    /// The panel.
    pub panel: Rect,
    /// The panel in one line.
    pub folded: Rect,
    /// Hints, or what is to be said.
    pub footer: Rect,
}

/// The parts, or none where the screen is too small. `input_height` gives the lines of the input box for a width.
pub fn areas(size: (u16, u16), wish: Wish, input_height: impl Fn(u16) -> u16) -> Option<Areas> {
    let (width, height) = size;
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return None;
    }
    let rect = |x, y, width, height| Rect { x, y, width, height };
    // What is to be said may take several lines; the rest keeps what it needs.
    let footer = wish.footer.clamp(1, (height - SMALLEST.1 + 1).min(MOST_FOOTER));
    let mut areas = Areas { footer: rect(0, height - footer, width, footer), ..Areas::default() };
    let panel_room = width >= PANEL_FROM;
    let mut body = height - footer;
    if wish.panel && !panel_room && body > 4 {
        body -= 1;
        areas.folded = rect(0, body, width, 1);
    }
    let panel = if wish.panel && panel_room { PANEL } else { 0 };
    let list_room = width.saturating_sub(panel + LIST + 2) >= MESSAGES;
    let list = if wish.list && list_room { LIST } else { 0 };
    areas.list = rect(0, 0, list, body);
    areas.panel = rect(width - panel, 0, panel, body);
    // One column between the parts.
    let left = if list > 0 { list + 1 } else { 0 };
    let right = if panel > 0 { panel + 1 } else { 0 };
    let middle = width - left - right;
    let input = (input_height(middle.saturating_sub(3)) + 1).min(body.saturating_sub(3).max(2));
    areas.title = rect(left, 0, middle, 1);
    let room = body.saturating_sub(1 + input);
    // The messages keep at least half of it.
    let beams = wish.beams.min(room / 2);
    areas.messages = rect(left, 1, middle, room - beams);
    areas.beams = rect(left, 1 + room - beams, middle, beams);
    areas.input = rect(left, body - input, middle, input);
    // Without room of their own the list and the sliders stand over the rest while they have the focus.
    if wish.list_focus && list == 0 {
        areas.list = rect(0, 0, LIST.min(width), body);
    }
    if wish.panel_focus && panel == 0 {
        let wide = PANEL.min(width);
        areas.panel = rect(width - wide, 0, wide, body);
    }
    Some(areas)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_part_is_on_the_screen(width in 0u16..400, height in 0u16..120, list: bool, list_focus: bool, panel: bool, panel_focus: bool, beams in 0u16..20, footer in 0u16..6, lines in 1u16..9) {
            let screen = Rect { x: 0, y: 0, width, height };
            let wish = Wish { list, list_focus, panel, footer, beams, panel_focus };
            if let Some(a) = areas((width, height), wish, |_| lines) {
                for part in [a.list, a.title, a.messages, a.beams, a.input, a.panel, a.folded, a.footer] {
                    prop_assert!(part.is_empty() || screen.intersection(part) == part, "{part:?} of {screen:?}");
                }
                prop_assert!(a.messages.bottom() <= a.beams.y && a.beams.bottom() <= a.input.y && a.input.bottom() <= a.footer.y);
                prop_assert!(a.input.height >= 2 && a.title.height == 1);
            } else {
                prop_assert!(width < SMALLEST.0 || height < SMALLEST.1);
            }
        }
    }
}
