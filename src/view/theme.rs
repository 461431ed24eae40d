//! The few roles that colours have. Only the terminal's own sixteen colours are used, so that the user's theme
//! decides what they look like and text stays readable on dark and light backgrounds.

use ratatui::style::{Color, Modifier, Style};

use crate::chat::{Role, TokenRecord};

/// Styles by role.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Ordinary text.
    pub text: Style,
    /// What is read only when looked for: lines, units, hints.
    pub faint: Style,
    /// Headings.
    pub heading: Style,
    /// What has the focus or is chosen.
    pub chosen: Style,
    /// A figure.
    pub figure: Style,
    /// A fault.
    pub error: Style,
    /// A bar's filled part.
    pub bar: Style,
    /// Every second one of things that stand side by side.
    pub other: Style,
    /// Words that only the left one of two texts has.
    pub removed: Style,
    /// Words that only the right one has.
    pub added: Style,
    surprises: [Style; 4],
    system: Style,
    user: Style,
    model: Style,
}

impl Theme {
    /// The theme, with colours or without.
    pub fn new(color: bool) -> Self {
        let plain = Style::new();
        let paint = |c: Color| if color { plain.fg(c) } else { plain };
        Self {
            text: plain,
            faint: plain.add_modifier(Modifier::DIM),
            heading: plain.add_modifier(Modifier::BOLD),
            chosen: plain.add_modifier(Modifier::REVERSED),
            figure: plain.add_modifier(Modifier::BOLD),
            error: paint(Color::Red).add_modifier(Modifier::BOLD),
            bar: paint(Color::Cyan),
            other: plain.add_modifier(Modifier::UNDERLINED),
            removed: paint(Color::Red).add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            added: paint(Color::Green).add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            surprises: [
                plain,
                paint(Color::Yellow),
                paint(Color::Magenta).add_modifier(Modifier::UNDERLINED),
                paint(Color::Red).add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            ],
            system: paint(Color::Magenta),
            user: paint(Color::Green),
            model: paint(Color::Blue),
        }
    }

    /// The colour of a token by its surprise.
    pub fn surprise(&self, record: &TokenRecord) -> Style {
        self.surprises[record.surprise()]
    }

    /// The colour of what belongs to a role.
    pub fn role(&self, role: Role) -> Style {
        match role {
            Role::System => self.system,
            Role::User => self.user,
            Role::Assistant => self.model,
        }
    }
}
