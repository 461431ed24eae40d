//! Edits of the conversation: another answer, a question put otherwise, going on from any point, deleting a branch,
//! copying one; and undoing each of them. What was stays.

use super::commands::Command;
use super::keys::shown;
use super::{App, Chat, Focus};
use crate::chat::{Access, Edit, Entry, MessageId, Role};

impl App {
    /// Another answer to a question; those before stay.
    pub(super) fn answer_again(&mut self, question: MessageId) {
        if self.may_change() {
            let ticket = self.next_number();
            let entries = vec![Entry::Head { id: Some(question) }];
            self.chat.edit(Edit::Again, entries, true, Some(ticket), &mut self.effects);
            self.chat.transcript.follow();
            self.go(Focus::Input);
            self.ask(question, Some(ticket));
        }
    }

    /// Goes on with the last answer.
    pub(super) fn continue_answer(&mut self) {
        let last = self.chat.head().filter(|m| m.role == Role::Assistant && !m.text.trim().is_empty()).map(|m| m.id);
        match last {
            Some(answer) => {
                if self.may_change() {
                    self.chat.transcript.follow();
                    self.ask(answer, None);
                }
            }
            None => self.tell("There is no answer to go on with"),
        }
    }

    /// Takes a question back into the box; sending it makes another try, what was stays.
    pub(super) fn edit(&mut self, question: MessageId) {
        if !self.may_change() {
            return;
        }
        let Some((parent, text)) = self.chat.conversation.message(question).map(|m| (m.parent, m.text.clone())) else {
            return;
        };
        self.chat.edit(Edit::Change, vec![Entry::Head { id: parent }], false, None, &mut self.effects);
        self.input.set(&text);
        self.typed();
        self.go(Focus::Input);
        self.tell("Change the question and send it; the old one stays in the file");
    }

    /// The message that is selected.
    pub(super) fn selected(&self) -> Option<MessageId> {
        self.chat.transcript.selected.filter(|id| self.chat.conversation.message(*id).is_some())
    }

    pub(super) fn again_selected(&mut self) {
        if let Some(question) = self.selected().and_then(|id| self.chat.conversation.question_of(id)) {
            self.answer_again(question);
        }
    }

    pub(super) fn edit_selected(&mut self) {
        if let Some(question) = self.selected().and_then(|id| self.chat.conversation.question_of(id)) {
            self.edit(question);
        }
    }

    /// Shows the try before or after of the selected message, with what came after it.
    pub(super) fn step_try(&mut self, by: isize) {
        let Some(id) = self.selected() else { return };
        let tries = self.chat.conversation.tries(id);
        let at = tries.iter().position(|t| *t == id).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(tries.len().saturating_sub(1));
        if to != at && self.may_step() {
            let head = self.chat.conversation.leaf_of(tries[to]);
            self.chat.show_path(Some(head), &mut self.effects);
            self.chat.transcript.selected = Some(tries[to]);
        }
    }

    /// Whether another path can be shown: also in a conversation that is only read.
    pub(super) fn may_step(&mut self) -> bool {
        let busy = self.is_busy();
        if busy {
            self.tell("An answer runs; Esc stops it");
        }
        !busy
    }

    /// Shows the path through a message, and selects it.
    pub(super) fn show_message(&mut self, id: MessageId) {
        if self.chat.conversation.is_deleted(id) || !self.may_step() {
            return;
        }
        if !self.chat.conversation.path().iter().any(|m| m.id == id) {
            let head = self.chat.conversation.leaf_of(id);
            self.chat.show_path(Some(head), &mut self.effects);
        }
        self.go(Focus::Messages);
        // Its line is known when the new path is laid out.
        self.refresh();
        let height = self.view_height();
        self.chat.transcript.show(id, height);
    }

    /// What is asked next follows the selected message.
    pub(super) fn go_on(&mut self) {
        let Some(id) = self.selected().filter(|_| self.may_change()) else { return };
        if self.chat.conversation.head == Some(id) {
            self.tell("The conversation goes on from here already");
        } else {
            self.chat.edit(Edit::Branch, vec![Entry::Head { id: Some(id) }], false, None, &mut self.effects);
            let undo = key(Command::UndoEdit);
            self.tell(format!("What you ask now follows this message; what followed it stays. {undo} goes back"));
        }
        self.chat.transcript.follow();
        self.go(Focus::Input);
    }

    pub(super) fn delete_selected(&mut self) {
        if let Some(id) = self.selected() {
            self.delete_branch(id);
        }
    }

    /// Deletes a message with all that follows it.
    pub(super) fn delete_branch(&mut self, id: MessageId) {
        if !self.may_change() || self.chat.conversation.is_deleted(id) {
            return;
        }
        let n = self.chat.conversation.branch(id).len();
        let head = self.chat.conversation.head_without(id);
        let entries = vec![Entry::Delete { id }, Entry::Head { id: head }];
        self.chat.edit(Edit::Delete, entries, true, None, &mut self.effects);
        let (undo, tree) = (key(Command::UndoEdit), Command::Tree.row().slash);
        let shows = if self.focus == Focus::Tree { key(Command::TreeDeleted) } else { format!("/{tree}") };
        self.tell(format!("{}; {undo} brings back what was deleted, {shows} shows it", messages(n, "deleted")));
    }

    /// Brings back what was deleted with a message.
    pub(super) fn restore_branch(&mut self, id: MessageId) {
        let Some(root) = self.chat.conversation.deleted_at(id) else {
            self.tell("This is not deleted");
            return;
        };
        if self.may_change() {
            self.chat.edit(Edit::Restore, vec![Entry::Restore { id: root }], true, None, &mut self.effects);
            let n = self.chat.conversation.branch(root).len();
            self.tell(messages(n, "back"));
        }
    }

    /// Copies the path that is shown into a new conversation.
    pub(super) fn copy_path(&mut self) {
        match self.chat.conversation.head {
            Some(head) => self.copy_branch(head, false),
            None => self.tell("There is nothing to copy yet"),
        }
    }

    pub(super) fn copy_up_to_selected(&mut self) {
        if let Some(id) = self.selected() {
            self.copy_branch(id, false);
        }
    }

    /// Copies the path to a message, and with `rest` all that follows it, into a new conversation, which is shown.
    pub(super) fn copy_branch(&mut self, id: MessageId, rest: bool) {
        if !self.may_step() || self.chat.conversation.is_deleted(id) {
            return;
        }
        let new = self.new_id();
        let copy = self.chat.conversation.copy_of(id, rest, new, self.now.wall_ms);
        let n = copy.messages.len();
        let mut chat = Chat::new(copy, Access::Write, false);
        chat.ensure_file(&mut self.effects);
        self.show(chat);
        self.tell(format!("{} in a new conversation; the other one stays as it is", messages(n, "copied")));
    }

    /// Undoes the last edit of this conversation.
    pub(super) fn undo_edit(&mut self) {
        self.take_back(true);
    }

    /// Does again what was undone last.
    pub(super) fn redo_edit(&mut self) {
        self.take_back(false);
    }

    fn take_back(&mut self, undo: bool) {
        if !self.may_change() {
            return;
        }
        // A slider that moved just now is an edit as well, which the file must know of first.
        let now = self.now.mono;
        self.chat.save_all(now, &mut self.effects);
        let conversation = &self.chat.conversation;
        let Some((what, entries)) = (if undo { conversation.undo() } else { conversation.redo() }) else {
            self.tell(if undo { "There is nothing to undo" } else { "There is nothing to do again" });
            return;
        };
        self.chat.record(entries, true, None, &mut self.effects);
        let (again, done) = if undo { (Command::RedoEdit, "Undone") } else { (Command::UndoEdit, "Done again") };
        let other = if undo { "does it again" } else { "undoes it" };
        self.tell(format!("{done}: {}. {} {other}", what.label(), key(again)));
        match what {
            Edit::Settings => self.look(),
            Edit::Title | Edit::Filing => self.list(),
            Edit::System | Edit::Cut | Edit::Overflow | Edit::Other => {}
            _ => self.chat.transcript.follow(),
        }
        if self.focus == Focus::Compare {
            self.go(Focus::Messages);
        }
    }
}

/// The first key of a command, as people read it.
fn key(command: Command) -> String {
    command.row().keys.first().map(|k| shown(k)).unwrap_or_default()
}

fn messages(n: usize, done: &str) -> String {
    if n == 1 { format!("1 message is {done}") } else { format!("{n} messages are {done}") }
}
