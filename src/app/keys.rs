//! From key events to commands, and how keys are written.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::commands::{COMMANDS, Command, Scope};

/// The command of a key where the focus is; global ones where the focus has none.
pub fn command(key: &KeyEvent, scope: Scope) -> Option<Command> {
    let written = written(key)?;
    let of =
        |scope| COMMANDS.iter().find(|r| r.scope == scope && r.keys.contains(&written.as_str())).map(|r| r.command);
    of(scope).or_else(|| of(Scope::Global))
}

/// A key as the table writes it, such as `ctrl-n` or `shift-left`; none for keys that no row can name.
fn written(key: &KeyEvent) -> Option<String> {
    let mut modifiers = key.modifiers;
    let name = match key.code {
        KeyCode::Char(' ') => "space".to_owned(),
        // Ctrl-J arrives as itself; some terminals send a line feed without the modifier.
        KeyCode::Char('\n') => return Some("ctrl-j".to_owned()),
        KeyCode::Char(c) => {
            // A capital is its own key: terminals differ in whether they report Shift with it.
            modifiers.remove(KeyModifiers::SHIFT);
            if modifiers.contains(KeyModifiers::CONTROL) { c.to_lowercase().to_string() } else { c.to_string() }
        }
        KeyCode::F(n) => format!("f{n}"),
        KeyCode::Enter => "enter".to_owned(),
        KeyCode::Esc => "esc".to_owned(),
        KeyCode::Tab => "tab".to_owned(),
        KeyCode::BackTab => {
            modifiers.insert(KeyModifiers::SHIFT);
            "tab".to_owned()
        }
        KeyCode::Backspace => "backspace".to_owned(),
        KeyCode::Delete => "del".to_owned(),
        KeyCode::Left => "left".to_owned(),
        KeyCode::Right => "right".to_owned(),
        KeyCode::Up => "up".to_owned(),
        KeyCode::Down => "down".to_owned(),
        KeyCode::Home => "home".to_owned(),
        KeyCode::End => "end".to_owned(),
        KeyCode::PageUp => "pgup".to_owned(),
        KeyCode::PageDown => "pgdn".to_owned(),
        _ => return None,
    };
    let mut out = String::new();
    for (modifier, prefix) in
        [(KeyModifiers::CONTROL, "ctrl-"), (KeyModifiers::ALT, "alt-"), (KeyModifiers::SHIFT, "shift-")]
    {
        if modifiers.contains(modifier) {
            out.push_str(prefix);
        }
    }
    // Ctrl-7 is what many terminals send for Ctrl-_.
    Some(if out == "ctrl-" && name == "7" { "ctrl-_".to_owned() } else { out + &name })
}

/// A key of the table as people read it: `Ctrl-N`, `Shift-Left`, `y`.
pub fn shown(key: &str) -> String {
    let parts: Vec<String> = key
        .split('-')
        .map(|part| match part {
            "pgup" => "PgUp".to_owned(),
            "pgdn" => "PgDn".to_owned(),
            part if part.len() == 1 && !key.contains('-') => part.to_owned(),
            part => {
                let mut chars = part.chars();
                chars.next().map_or_else(|| "-".to_owned(), |c| c.to_uppercase().chain(chars).collect())
            }
        })
        .collect();
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn keys_find_their_commands() {
        let ctrl = KeyModifiers::CONTROL;
        assert_eq!(command(&key(KeyCode::Char('n'), ctrl), Scope::Input), Some(Command::NewChat));
        assert_eq!(command(&key(KeyCode::Char('N'), ctrl | KeyModifiers::SHIFT), Scope::Input), Some(Command::NewChat));
        assert_eq!(command(&key(KeyCode::Enter, KeyModifiers::ALT), Scope::Input), Some(Command::Newline));
        assert_eq!(command(&key(KeyCode::Char('G'), KeyModifiers::SHIFT), Scope::Messages), Some(Command::Last));
        assert_eq!(command(&key(KeyCode::Char('g'), KeyModifiers::NONE), Scope::Messages), Some(Command::First));
        assert_eq!(command(&key(KeyCode::Char('g'), KeyModifiers::NONE), Scope::Input), None);
        assert_eq!(command(&key(KeyCode::BackTab, KeyModifiers::SHIFT), Scope::Input), Some(Command::PreviousArea));
    }

    #[test]
    fn every_key_of_the_table_can_be_pressed_and_means_one_thing_in_its_scope() {
        for row in COMMANDS {
            for k in row.keys {
                let same = COMMANDS.iter().filter(|r| r.scope == row.scope && r.keys.contains(k)).count();
                assert_eq!(same, 1, "{k} in {:?}", row.scope);
                assert!(!shown(k).is_empty());
            }
        }
        assert_eq!(
            [shown("ctrl-n"), shown("shift-left"), shown("y"), shown("pgup"), shown("G")],
            ["Ctrl-N", "Shift-Left", "y", "PgUp", "G"]
        );
    }
}
