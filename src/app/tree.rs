//! The tree of the conversation: every branch as rows, one of them chosen.

use super::commands::Command;
use super::{App, Focus};
use crate::chat::{MessageId, Node};

/// The tree while it is shown.
#[derive(Debug, Default)]
pub struct Tree {
    /// Its rows, from top to bottom.
    pub rows: Vec<Node>,
    /// Which one is chosen.
    pub at: usize,
    /// What was deleted is shown too.
    pub deleted: bool,
    /// A message that the chosen one is to be compared with.
    pub marked: Option<MessageId>,
}

impl Tree {
    /// The message of the chosen row.
    pub fn chosen(&self) -> Option<MessageId> {
        self.rows.get(self.at).map(|node| node.id)
    }

    fn choose(&mut self, id: MessageId) {
        if let Some(at) = self.rows.iter().position(|node| node.id == id) {
            self.at = at;
        }
    }
}

impl App {
    /// Opens the tree at the selected or the last message; closes it where it is open.
    pub(super) fn show_tree(&mut self) {
        if self.focus == Focus::Tree {
            self.go(Focus::Input);
            return;
        }
        let conversation = &self.chat.conversation;
        let selected = self.chat.transcript.selected.filter(|_| self.focus == Focus::Messages);
        let Some(at) = selected.or(conversation.head).or_else(|| conversation.messages.last().map(|m| m.id)) else {
            self.tell("There is no message yet");
            return;
        };
        // Where everything is deleted, that is what there is to see.
        let deleted = conversation.is_deleted(at);
        let mut tree = Tree { rows: conversation.tree(deleted), deleted, ..Tree::default() };
        tree.choose(at);
        self.tree = Some(tree);
        self.go(Focus::Tree);
    }

    /// The rows as the conversation is now; the same message stays chosen.
    pub(super) fn refresh_tree(&mut self) {
        let Some(tree) = self.tree.as_mut().filter(|_| self.focus == Focus::Tree) else { return };
        let chosen = tree.chosen();
        tree.rows = self.chat.conversation.tree(tree.deleted);
        if let Some(id) = chosen {
            tree.choose(id);
        }
        tree.at = tree.at.min(tree.rows.len().saturating_sub(1));
        // The last message was deleted or taken back: there is nothing to show a tree of.
        if tree.rows.is_empty() {
            self.go(Focus::Input);
        }
    }

    pub(super) fn step_tree(&mut self, by: isize) {
        if let Some(tree) = &mut self.tree {
            tree.at = tree.at.saturating_add_signed(by).min(tree.rows.len().saturating_sub(1));
        }
    }

    fn in_tree(&self) -> Option<MessageId> {
        self.tree.as_ref().and_then(Tree::chosen)
    }

    /// To another try of the chosen message.
    pub(super) fn step_tree_try(&mut self, by: isize) {
        let Some(id) = self.in_tree() else { return };
        let tries = self.chat.conversation.tries(id);
        let at = tries.iter().position(|t| *t == id).and_then(|at| at.checked_add_signed(by));
        if let (Some(other), Some(tree)) = (at.and_then(|at| tries.get(at)), &mut self.tree) {
            tree.choose(*other);
        }
    }

    /// Shows the path through the chosen message.
    pub(super) fn jump(&mut self) {
        let Some(id) = self.in_tree() else { return };
        if self.chat.conversation.is_deleted(id) {
            let key = Command::TreeRestore.row().keys.first().copied().unwrap_or_default();
            self.tell(format!("This is deleted; {key} brings it back"));
        } else {
            self.show_message(id);
        }
    }

    pub(super) fn mark_in_tree(&mut self) {
        let chosen = self.in_tree();
        if let Some(tree) = &mut self.tree {
            tree.marked = chosen.filter(|id| tree.marked != Some(*id));
        }
    }

    /// Compares the chosen message with the marked one, or with another try.
    pub(super) fn compare_in_tree(&mut self) {
        let marked = self.tree.as_ref().and_then(|t| t.marked);
        match (self.in_tree(), marked) {
            (Some(id), Some(marked)) if id != marked => self.compare(marked, id),
            (Some(id), _) => self.compare_tries(id),
            (None, _) => {}
        }
    }

    pub(super) fn delete_in_tree(&mut self) {
        if let Some(id) = self.in_tree() {
            self.delete_branch(id);
        }
    }

    pub(super) fn restore_in_tree(&mut self) {
        if let Some(id) = self.in_tree() {
            self.restore_branch(id);
        }
    }

    pub(super) fn toggle_deleted(&mut self) {
        let none = self.chat.conversation.deleted.is_empty();
        let Some(tree) = &mut self.tree else { return };
        tree.deleted = !tree.deleted && !none;
        if none {
            self.tell("Nothing of this conversation was deleted");
        }
    }

    pub(super) fn copy_from_tree(&mut self) {
        if let Some(id) = self.in_tree() {
            self.copy_branch(id, true);
        }
    }
}
