//! What each command does, and the keys of sliders and boxes.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::commands::Command;
use super::event::Effect;
use super::overlay::{Asked, Overlay, hits};
use super::{App, Focus, Input};
use crate::chat::{Edit, Entry, Finish, Role};
use crate::engine::protocol::Pick;

/// Lines that stay when a page is turned.
const OVERLAP: usize = 2;

impl App {
    /// Does what a command says.
    #[allow(clippy::too_many_lines)] // One arm a command, and the match is exhaustive: that is its point.
    pub(super) fn perform(&mut self, command: Command) {
        let height = self.view_height();
        let page = isize::try_from(height.saturating_sub(OVERLAP).max(1)).unwrap_or(1);
        match command {
            Command::Stop => self.escape(false),
            Command::Interrupt => self.interrupt(false),
            Command::NewChat => self.new_chat(),
            Command::Chats => self.go(Focus::List),
            Command::NextChat => self.step_chat(1),
            Command::PreviousChat => self.step_chat(-1),
            Command::Sliders => self.go(if self.focus == Focus::Sliders { Focus::Input } else { Focus::Sliders }),
            Command::NextArea => self.go(match self.focus {
                Focus::Input => Focus::Messages,
                Focus::Messages => Focus::Sliders,
                Focus::Sliders if self.lens.open => Focus::Candidates,
                Focus::Sliders | Focus::List | Focus::Candidates | Focus::Tokens | Focus::Tree | Focus::Compare => {
                    Focus::Input
                }
            }),
            Command::PreviousArea => self.go(match self.focus {
                Focus::Input | Focus::Candidates => Focus::Sliders,
                Focus::Sliders => Focus::Messages,
                Focus::Messages | Focus::List | Focus::Tokens | Focus::Tree | Focus::Compare => Focus::Input,
            }),
            Command::Search => self.search(""),
            Command::Attach | Command::RunCommand => {
                self.tell("Write what to read behind it: /read notes.txt, /read src/**/*.rs, /run git diff");
            }
            Command::ShowContents => self.show_contents(),
            Command::Palette => self.overlay = Some(Overlay::Palette { query: String::new(), at: 0 }),
            Command::Help => self.overlay = Some(Overlay::Help(0)),
            Command::TogglePanel => self.show_panel = !self.show_panel,
            Command::ToggleList => self.show_list = !self.show_list,
            Command::Restart => self.restart(),
            Command::Model => {
                self.overlay = Some(Overlay::Models { list: None, at: 0 });
                self.effects.push(Effect::ListModels);
            }
            Command::System => self.ask_text(Asked::System, &self.chat.conversation.system.clone()),
            Command::Rename => {
                let id = self.chat.conversation.id.clone();
                let title = self.chat.title().to_owned();
                self.ask_text(Asked::Title(id), &title);
            }
            Command::Delete => {
                let id = self.chat.conversation.id.clone();
                self.overlay = Some(Overlay::Delete(id, self.chat.title().to_owned()));
            }
            Command::Export => self.export(""),
            Command::Regenerate => match self.chat.last_question() {
                Some(question) => self.answer_again(question),
                None => self.tell("There is no question yet"),
            },
            Command::Continue => self.continue_answer(),
            Command::EditLast => match self.chat.last_question() {
                Some(question) => self.edit(question),
                None => self.tell("There is no question yet"),
            },
            Command::CopyAnswer => self.copy_last(),
            Command::Set => self.tell("Which slider? For example /set temp 0.7"),
            Command::Show => self.show_facts(),
            Command::Overflow => self.show_overflow(),
            Command::Cut => self.show_cut(),
            Command::Uncut => self.undo_cut(),
            Command::PageUp => self.chat.transcript.scroll_by(-page, height),
            Command::PageDown => self.chat.transcript.scroll_by(page, height),
            Command::Top => self.chat.transcript.scroll_to(0, height),
            Command::Bottom => self.chat.transcript.follow(),
            Command::Repaint => self.effects.push(Effect::Repaint),
            Command::Suspend => self.effects.push(Effect::Suspend),
            Command::Quit => self.quit(),
            Command::Send => self.enter(),
            Command::Newline => {
                self.input.area.insert_newline();
                self.typed();
            }
            Command::Leave => {
                if self.input.is_empty() {
                    self.quit();
                } else {
                    self.input.area.delete_next_char();
                    self.typed();
                }
            }
            Command::Earlier => self.earlier(),
            Command::Later => {
                self.input.later();
                self.typed();
            }
            Command::Editor => self.effects.push(Effect::Edit(self.input.text())),
            Command::Unfold => {
                if !self.input.unfold() {
                    self.tell("Nothing is folded");
                }
            }
            Command::Undo => self.changed(|input| input.area.undo()),
            Command::Redo => self.changed(|input| input.area.redo()),
            Command::Up => self.chat.transcript.select(-1, height),
            Command::Down => self.chat.transcript.select(1, height),
            Command::First => self.chat.transcript.select(isize::MIN / 2, height),
            Command::Last => self.chat.transcript.select(isize::MAX / 2, height),
            Command::Copy => self.copy_selected(),
            Command::Again => self.again_selected(),
            Command::Edit => self.edit_selected(),
            Command::OlderTry => self.step_try(-1),
            Command::NewerTry => self.step_try(1),
            Command::Back => self.go(Focus::Input),
            Command::Tree => self.show_tree(),
            Command::UndoEdit => self.undo_edit(),
            Command::RedoEdit => self.redo_edit(),
            Command::CopyPath => self.copy_path(),
            Command::CompareLast => self.compare_last(),
            Command::GoOn => self.go_on(),
            Command::CompareTries => self.compare_selected(),
            Command::DeleteBranch => self.delete_selected(),
            Command::CopyBranch => self.copy_up_to_selected(),
            Command::TreeUp => self.step_tree(-1),
            Command::TreeDown => self.step_tree(1),
            Command::TreePageUp => self.step_tree(-10),
            Command::TreePageDown => self.step_tree(10),
            Command::TreeFirst => self.step_tree(isize::MIN / 2),
            Command::TreeLast => self.step_tree(isize::MAX / 2),
            Command::TreeBefore => self.step_tree_try(-1),
            Command::TreeAfter => self.step_tree_try(1),
            Command::TreeJump => self.jump(),
            Command::TreeCompare => self.compare_in_tree(),
            Command::TreeMark => self.mark_in_tree(),
            Command::TreeDelete => self.delete_in_tree(),
            Command::TreeDeleted => self.toggle_deleted(),
            Command::TreeRestore => self.restore_in_tree(),
            Command::TreeCopy => self.copy_from_tree(),
            Command::CompareUp => self.scroll_comparison(-1),
            Command::CompareDown => self.scroll_comparison(1),
            Command::ComparePageUp => self.scroll_comparison(-page),
            Command::ComparePageDown => self.scroll_comparison(page),
            Command::CompareBefore => self.compare_other(-1),
            Command::CompareAfter => self.compare_other(1),
            Command::CompareSwap => self.swap_comparison(),
            Command::CompareTake => self.take_right(),
            Command::KnobUp => self.choose_knob(-1),
            Command::KnobDown => self.choose_knob(1),
            Command::Less => self.slide(|s, spec| spec.step(s, -1, false)),
            Command::More => self.slide(|s, spec| spec.step(s, 1, false)),
            Command::MuchLess => self.slide(|s, spec| spec.step(s, -1, true)),
            Command::MuchMore => self.slide(|s, spec| spec.step(s, 1, true)),
            Command::AllKnobs => {
                self.all_knobs = !self.all_knobs;
                self.knob = self.slider().knob;
            }
            Command::Reset => {
                let default = self.defaults.0.clone();
                // The default is in range, so setting it cannot fail.
                self.slide(|s, spec| drop(spec.set(s, default.get(spec.knob))));
            }
            Command::Cache => self.show_cache(),
            Command::Microscope => self.toggle_lens(),
            Command::Presets => self.show_presets(),
            Command::Samplers => self.tell_order(),
            Command::Bias => self.tell("Which token? /bias TEXT VALUE adds to its logit, -100 forbids it; /bias off"),
            Command::Grammar => self.tell("Which file? /grammar FILE (GBNF, or a JSON schema); /grammar off"),
            Command::Unloop => self.unloop(),
            Command::Surprise => self.score_prompt(),
            Command::SplitInput => self.split_input(),
            Command::Candidates => self.go(Focus::Candidates),
            Command::CandidateUp => self.choose_candidate(-1),
            Command::CandidateDown => self.choose_candidate(1),
            Command::PickCandidate => self.pick_candidate(),
            Command::StepChain => self.pick(Pick::Chain),
            Command::PickText => self.ask_text(Asked::Token, ""),
            Command::LetRun => self.let_run(),
            Command::Tokens => self.open_tokens(),
            Command::TokenBefore => self.step_token(-1),
            Command::TokenAfter => self.step_token(1),
            Command::TokensBefore => self.step_token(-10),
            Command::TokensAfter => self.step_token(10),
            Command::NextSurprise => self.next_surprise(true),
            Command::LastSurprise => self.next_surprise(false),
            Command::Reroll => self.reroll(0),
            Command::RerollSecond => self.reroll(1),
            Command::LeaveTokens => self.go(Focus::Messages),
            Command::ListUp
            | Command::ListDown
            | Command::ListPageUp
            | Command::ListPageDown
            | Command::Open
            | Command::Filter
            | Command::ListRename
            | Command::Tags
            | Command::Pin
            | Command::Archive
            | Command::ShowArchived
            | Command::ListDelete
            | Command::ListRestore => self.list_command(command),
        }
    }

    pub(super) fn go(&mut self, to: Focus) {
        if to != Focus::Tokens {
            self.tokens = None;
        }
        if to != Focus::Compare {
            self.comparison = None;
        }
        if !matches!(to, Focus::Tree | Focus::Compare) {
            self.tree = None;
        }
        if to == Focus::Candidates {
            self.lens.open = true;
            self.show_panel = true;
        }
        self.focus = to;
        self.number.clear();
        if to == Focus::Messages && self.chat.transcript.selected.is_none() {
            let height = self.view_height();
            self.chat.transcript.select(0, height);
        }
    }

    fn changed(&mut self, edit: impl Fn(&mut Input) -> bool) {
        if edit(&mut self.input) {
            self.typed();
        }
    }

    pub(super) fn ask_text(&mut self, what: Asked, text: &str) {
        if what == Asked::System && !self.chat.is_ours() {
            self.error("This conversation is only shown here; it cannot be changed");
            return;
        }
        let mut input = Box::new(Input::default());
        input.set(text);
        self.overlay = Some(Overlay::Ask { what, input });
    }

    /// Saves what waits and leaves. What runs is kept as far as it came.
    pub(super) fn quit(&mut self) {
        self.break_off("the program ends", Finish::Cancelled);
        let now = self.now.mono;
        for chat in self.background.values_mut().chain([&mut self.chat]) {
            chat.save_all(now, &mut self.effects);
        }
        self.effects.push(Effect::Quit);
    }

    pub(super) fn interrupt(&mut self, twice: bool) {
        if twice {
            self.quit();
        } else if !self.stop() {
            self.tell("Press Ctrl-C once more to leave");
        }
        self.pressed_c = Some(self.now.mono);
    }

    /// One step back: out of sliders and list, then the answer stops, then waiting questions come back, then
    /// the selection and the notice go; a second press on an empty box takes the last question back.
    pub(super) fn escape(&mut self, twice: bool) {
        if self.focus == Focus::Tokens {
            self.go(Focus::Messages);
        } else if self.focus == Focus::Tree {
            self.go(Focus::Input);
        } else if self.focus == Focus::Compare {
            self.go(if self.tree.is_some() { Focus::Tree } else { Focus::Messages });
        } else if self.focus == Focus::List && self.end_filter() {
        } else if matches!(self.focus, Focus::Sliders | Focus::List | Focus::Candidates) && !self.is_by_hand() {
            self.go(Focus::Input);
        } else if self.stop() {
        } else if self.take_queued() || self.focus == Focus::Messages {
            self.go(Focus::Input);
        } else if twice && self.input.is_empty() {
            self.perform(Command::EditLast);
        } else {
            self.notice = None;
            self.pressed_esc = Some(self.now.mono);
        }
    }

    /// Enter: a new line after a backslash, a command after a slash, else a question.
    fn enter(&mut self) {
        if self.input.continue_line() {
            self.typed();
            return;
        }
        let text = self.input.text();
        if text.trim().is_empty() {
            return;
        }
        if text.starts_with('/') && !text.contains('\n') {
            if self.slash(&text) {
                self.input.take();
                self.typed();
            }
            return;
        }
        if !self.chat.is_ours() {
            self.error("This conversation is only shown here. Ctrl-N starts a new one");
            return;
        }
        self.input.take();
        self.send(text);
    }

    /// Sends a question, or lets it wait for the running answer.
    pub(super) fn send(&mut self, text: String) {
        self.chat.transcript.follow();
        if self.is_busy() {
            self.chat.typed = self.input.text();
            let mut effects = Vec::new();
            self.chat.queue(text, &mut effects);
            self.effects.append(&mut effects);
            self.tell("The question waits for the answer; Up takes it back");
            return;
        }
        let id = self.chat.conversation.id.clone();
        self.put_question(&id, &text);
        self.tell_why_it_waits();
    }

    /// Writes a question into a conversation and asks for its answer.
    fn put_question(&mut self, id: &crate::chat::ConversationId, text: &str) {
        let at = self.now.wall_ms;
        let ticket = self.next_number();
        let mut effects = Vec::new();
        self.chat.typed = self.input.text();
        let Some(chat) = self.chat_mut(id) else { return };
        let (question, entries) = chat.question(text, at);
        chat.record(entries, true, Some(ticket), &mut effects);
        self.effects.append(&mut effects);
        self.ask_in(id.clone(), question, Some(ticket));
    }

    /// Sends the first waiting question of a conversation whose answer has ended.
    pub(super) fn send_queued(&mut self, id: &crate::chat::ConversationId) {
        let Some(chat) = self.chat_mut(id).filter(|c| !c.queued.is_empty()) else { return };
        let text = chat.queued.remove(0);
        self.put_question(id, &text);
    }

    fn earlier(&mut self) {
        if self.input.is_empty() && self.take_queued() {
            return;
        }
        if self.input.earlier() {
            self.typed();
        }
    }

    /// Takes the last waiting question back into an empty box.
    fn take_queued(&mut self) -> bool {
        if !self.input.is_empty() {
            return false;
        }
        let Some(text) = self.chat.queued.pop() else { return false };
        self.input.set(&text);
        self.typed();
        true
    }

    pub(super) fn may_change(&mut self) -> bool {
        if !self.chat.is_ours() {
            self.error("This conversation is only shown here; it cannot be changed");
            return false;
        }
        if self.is_busy() {
            self.tell("An answer runs; Esc stops it");
            return false;
        }
        true
    }

    /// Goes on with an answer that repeats itself; one that runs goes on as it is, with the penalty.
    fn unloop(&mut self) {
        let running = self.engine.job.as_ref().filter(|j| j.chat == self.chat.conversation.id);
        let looped = self.chat.head().is_some_and(|m| m.made.as_ref().is_some_and(|made| made.looped));
        if !running.map_or(looped, |j| j.looped) {
            self.tell("The last answer does not repeat itself; dry_multiplier is the penalty on repetition");
            return;
        }
        let runs = running.is_some();
        self.set_sampling(|s| s.dry_multiplier = s.dry_multiplier.max(0.8));
        if runs {
            self.tell("The answer goes on with dry at 0.80");
        } else {
            self.continue_answer();
        }
    }

    fn copy_selected(&mut self) {
        let text =
            self.chat.transcript.selected.and_then(|id| self.chat.conversation.message(id)).map(|m| m.text.clone());
        self.effects.extend(text.map(Effect::Copy));
    }

    fn copy_last(&mut self) {
        let path = self.chat.conversation.path();
        let text = path.iter().rev().find(|m| m.role == Role::Assistant).map(|m| m.text.clone());
        match text {
            Some(text) => self.effects.push(Effect::Copy(text)),
            None => self.tell("There is no answer yet"),
        }
    }

    /// A key while something stands over the screen.
    pub(super) fn overlay_key(&mut self, key: &KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let leaves = key.code == KeyCode::Esc || (control && matches!(key.code, KeyCode::Char('c' | 'g')));
        let Some(overlay) = self.overlay.take() else { return };
        if leaves {
            if let Overlay::Full(full) = overlay {
                self.leave_full(&full.chat, full.asked);
            }
            return;
        }
        if control && key.code == KeyCode::Char('q') {
            self.quit();
            return;
        }
        let step = match key.code {
            KeyCode::Up => -1,
            KeyCode::Down => 1,
            KeyCode::PageUp => -10,
            KeyCode::PageDown => 10,
            _ => 0,
        };
        let enter = key.code == KeyCode::Enter;
        self.overlay = match overlay {
            Overlay::Help(_) | Overlay::Text { .. }
                if enter || key.code == KeyCode::Char('q') || key.code == KeyCode::F(1) =>
            {
                None
            }
            Overlay::Help(top) => Some(Overlay::Help(top.saturating_add_signed(step))),
            Overlay::Text { title, lines, top } => {
                let top = top.saturating_add_signed(step).min(lines.len().saturating_sub(1));
                Some(Overlay::Text { title, lines, top })
            }
            Overlay::Presets { list, at } => {
                let at = at.saturating_add_signed(step).min(list.len().saturating_sub(1));
                match list.get(at).filter(|_| enter).cloned() {
                    Some(preset) => {
                        self.take_preset(&preset);
                        None
                    }
                    None => Some(Overlay::Presets { list, at }),
                }
            }
            Overlay::Cache { map, at } => Some(self.cache_key(key, map, at.saturating_add_signed(step))),
            Overlay::Full(full) => {
                self.full_key(key, full);
                return;
            }
            Overlay::Beyond { n_ctx, then } => match key.code {
                KeyCode::Char('y' | 'Y') => {
                    self.go_beyond(n_ctx, then);
                    None
                }
                KeyCode::Char('n' | 'N') => None,
                _ => Some(Overlay::Beyond { n_ctx, then }),
            },
            Overlay::Search(search) => self.search_key(key, search, step),
            Overlay::Palette { query, at } => self.palette_key(key, query, at.saturating_add_signed(step)),
            Overlay::Ask { what, mut input } => {
                let newline = what == Asked::System
                    && (key.modifiers.contains(KeyModifiers::ALT) && enter
                        || (control && key.code == KeyCode::Char('j')));
                if newline {
                    input.area.insert_newline();
                } else if enter {
                    self.answered(what, &input.text());
                    return;
                } else {
                    input.key(key);
                }
                Some(Overlay::Ask { what, input })
            }
            Overlay::Delete(id, title) => match key.code {
                KeyCode::Char('y' | 'Y') | KeyCode::Enter => {
                    self.trash(id);
                    None
                }
                KeyCode::Char('n' | 'N') => None,
                _ => Some(Overlay::Delete(id, title)),
            },
            Overlay::Models { list: Some(list), at } => {
                let at = at.saturating_add_signed(step).min(list.len().saturating_sub(1));
                match list.get(at).filter(|_| enter) {
                    Some((_, path)) => {
                        let path = path.clone();
                        self.load(path);
                        None
                    }
                    None => Some(Overlay::Models { list: Some(list), at }),
                }
            }
            Overlay::Models { list: None, at } => Some(Overlay::Models { list: None, at }),
        };
    }

    fn palette_key(&mut self, key: &KeyEvent, mut query: String, at: usize) -> Option<Overlay> {
        match key.code {
            KeyCode::Enter => {
                if let Some(row) = hits(&query).get(at) {
                    self.perform(row.command);
                }
                // The command may have opened something itself.
                return self.overlay.take();
            }
            KeyCode::Backspace => drop(query.pop()),
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => query.push(c),
            _ => {
                let at = at.min(hits(&query).len().saturating_sub(1));
                return Some(Overlay::Palette { query, at });
            }
        }
        Some(Overlay::Palette { query, at: 0 })
    }

    fn answered(&mut self, what: Asked, text: &str) {
        match what {
            Asked::Title(id) => self.rename(id, &text.replace('\n', " ")),
            Asked::Tags(id) => self.set_tags(id, text),
            Asked::System => self.set_system(text.trim().to_owned()),
            Asked::Token if text.is_empty() => {}
            Asked::Token => self.pick(Pick::Text(text.to_owned())),
        }
    }

    /// Changes the system prompt of this conversation; its next answer reads it.
    pub(super) fn set_system(&mut self, text: String) {
        if self.chat.is_ours() && self.chat.conversation.system != text {
            self.chat.edit(Edit::System, vec![Entry::System { text }], true, None, &mut self.effects);
            self.tell("The next answer reads the new system prompt");
        }
    }
}
