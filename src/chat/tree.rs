//! The conversation as a tree: its branches, what is deleted of it, its order on a screen.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::conversation::{Conversation, ConversationId, Message, MessageId, MessageState, Role};
use super::cut::Overflow;
use super::filing::Filing;
use super::history::History;
use super::journal::{Entry, JOURNAL_VERSION};

/// A row of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The message.
    pub id: MessageId,
    /// For each fork above it, whether more branches of that fork come below. A line without forks is not
    /// indented, however long it is.
    pub forks: Vec<bool>,
    /// It begins a branch: the last of `forks` is its own.
    pub begins: bool,
    /// It is on the path that is shown.
    pub shown: bool,
    /// It, or something that it follows, is deleted.
    pub deleted: bool,
}

impl Conversation {
    /// The message that another one follows, with the care that [`Self::path_to`] has.
    fn parent(&self, message: &Message) -> Option<MessageId> {
        message.parent.filter(|p| *p < message.id && self.message(*p).is_some())
    }

    /// Whether a message, or something that it follows, is deleted.
    pub fn is_deleted(&self, id: MessageId) -> bool {
        self.deleted_at(id).is_some()
    }

    /// The conversation without what is deleted of it, as it leaves the program.
    pub fn standing_only(&self) -> Cow<'_, Self> {
        if self.deleted.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut gone: BTreeSet<MessageId> = BTreeSet::new();
        // In one pass, because a message is younger than what it follows.
        for message in &self.messages {
            if self.deleted.contains(&message.id) || message.parent.is_some_and(|p| gone.contains(&p)) {
                gone.insert(message.id);
            }
        }
        let mut left = self.clone();
        left.messages.retain(|m| !gone.contains(&m.id));
        left.cuts.retain(|cut| !gone.contains(&cut.after));
        left.deleted.clear();
        left.history = History::default();
        Cow::Owned(left)
    }

    /// The message with which this one was deleted: itself, or the nearest before it.
    pub fn deleted_at(&self, id: MessageId) -> Option<MessageId> {
        if self.deleted.is_empty() {
            return None;
        }
        self.path_to(id).iter().rev().map(|m| m.id).find(|id| self.deleted.contains(id))
    }

    /// The last message of the path to this one before anything of it is deleted.
    pub(super) fn standing(&self, id: MessageId) -> Option<MessageId> {
        if self.deleted.is_empty() {
            return self.message(id).map(|m| m.id);
        }
        self.path_to(id).iter().map(|m| m.id).take_while(|id| !self.deleted.contains(id)).last()
    }

    /// Messages that stand for the same place as this one: those of its parent and its role, oldest first.
    pub fn tries(&self, id: MessageId) -> Vec<MessageId> {
        let Some(message) = self.message(id) else { return Vec::new() };
        let same = |m: &&Message| {
            m.parent == message.parent && m.role == message.role && (m.id == id || !self.deleted.contains(&m.id))
        };
        self.messages.iter().filter(same).map(|m| m.id).collect()
    }

    /// The last message of the youngest path through a message.
    pub fn leaf_of(&self, id: MessageId) -> MessageId {
        let mut youngest: HashMap<MessageId, MessageId> = HashMap::new();
        for message in self.messages.iter().filter(|m| !self.deleted.contains(&m.id)) {
            if let Some(parent) = self.parent(message) {
                let child = youngest.entry(parent).or_insert(message.id);
                *child = message.id.max(*child);
            }
        }
        let mut leaf = id;
        while let Some(child) = youngest.get(&leaf) {
            leaf = *child;
        }
        leaf
    }

    /// A message and all that follows it, but for what is deleted of that.
    pub fn branch(&self, id: MessageId) -> BTreeSet<MessageId> {
        let mut branch = BTreeSet::from([id]);
        let mut later: Vec<&Message> = self.messages.iter().filter(|m| m.id > id).collect();
        // A parent is older than its children, so each is looked at once.
        later.sort_by_key(|m| m.id);
        for message in later {
            if !self.deleted.contains(&message.id) && message.parent.is_some_and(|p| branch.contains(&p)) {
                branch.insert(message.id);
            }
        }
        branch
    }

    /// Where the conversation goes when that branch is deleted: to the nearest other try, or to what was before.
    pub fn head_without(&self, id: MessageId) -> Option<MessageId> {
        if !self.path().iter().any(|m| m.id == id) {
            return self.head;
        }
        let tries = self.tries(id);
        let at = tries.iter().position(|t| *t == id).unwrap_or(0);
        let other = tries.get(at + 1).or_else(|| tries.get(at.checked_sub(1)?));
        match other {
            Some(other) => Some(self.leaf_of(*other)),
            None => self.message(id).and_then(|m| self.parent(m)),
        }
    }

    /// A new conversation that holds the path to a message, and with `rest` all that follows it; the settings go
    /// with it, the history does not.
    #[must_use]
    pub fn copy_of(&self, id: MessageId, rest: bool, new: ConversationId, now: i64) -> Self {
        let mut keep: BTreeSet<MessageId> = self.path_to(id).iter().map(|m| m.id).collect();
        if rest {
            keep.extend(self.branch(id));
        }
        let kept = |id: MessageId| keep.contains(&id);
        let head = self.head.filter(|head| rest && kept(*head)).unwrap_or(if rest { self.leaf_of(id) } else { id });
        let messages = self.messages.iter().filter(|m| kept(m.id)).cloned();
        let title = self.title.as_deref().unwrap_or("Conversation");
        Self {
            id: new,
            created: now,
            title: Some(format!("{} (branch)", title.trim_end_matches(" (branch)"))),
            messages: messages.map(|m| Message { state: MessageState::Complete, ..m }).collect(),
            head: Some(head),
            draft: String::new(),
            cuts: self.cuts.iter().filter(|cut| kept(cut.after)).cloned().collect(),
            deleted: BTreeSet::new(),
            history: History::default(),
            ..self.clone()
        }
    }

    /// Every message in the order of the tree, the branches of a fork one after the other, oldest first.
    pub fn tree(&self, with_deleted: bool) -> Vec<Node> {
        let mut children: HashMap<Option<MessageId>, Vec<&Message>> = HashMap::new();
        for message in &self.messages {
            if with_deleted || !self.deleted.contains(&message.id) {
                children.entry(self.parent(message)).or_default().push(message);
            }
        }
        let shown: HashSet<MessageId> = self.path().iter().map(|m| m.id).collect();
        let mut nodes = Vec::with_capacity(self.messages.len());
        // Not recursive: a conversation is as deep as it is long.
        let mut waiting: Vec<Node> = Vec::new();
        let mut follow = |parent: Option<&Node>, waiting: &mut Vec<Node>| {
            let mut next = children.remove(&parent.map(|p| p.id)).unwrap_or_default();
            next.sort_by_key(|m| m.id);
            let begins = next.len() > 1;
            for (n, message) in next.iter().enumerate().rev() {
                let mut forks = parent.map_or_else(Vec::new, |p| p.forks.clone());
                if begins {
                    forks.push(n + 1 < next.len());
                }
                let deleted = parent.is_some_and(|p| p.deleted) || self.deleted.contains(&message.id);
                waiting.push(Node { id: message.id, forks, begins, shown: shown.contains(&message.id), deleted });
            }
        };
        follow(None, &mut waiting);
        while let Some(node) = waiting.pop() {
            follow(Some(&node), &mut waiting);
            nodes.push(node);
        }
        nodes
    }

    /// Everything that it holds, as the entries that make it; what could be undone is not among them.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = vec![
            Entry::Header { version: JOURNAL_VERSION, id: self.id.clone(), created: self.created },
            Entry::Sampling { sampling: self.sampling.clone() },
        ];
        entries.extend(self.title.clone().map(|text| Entry::Title { text }));
        if !self.system.is_empty() {
            entries.push(Entry::System { text: self.system.clone() });
        }
        entries.extend(self.contents.iter().cloned().map(Entry::Content));
        entries.extend(self.messages.iter().cloned().map(Entry::Message));
        entries.extend(self.deleted.iter().map(|id| Entry::Delete { id: *id }));
        entries.push(Entry::Head { id: self.head });
        entries.extend(self.cuts.iter().cloned().map(Entry::Cut));
        if self.overflow != Overflow::default() {
            entries.push(Entry::Overflow { overflow: self.overflow });
        }
        if self.filing != Filing::default() {
            entries.push(Entry::Filed(self.filing.clone()));
        }
        if !self.draft.is_empty() {
            entries.push(Entry::Draft { text: self.draft.clone() });
        }
        entries
    }

    /// The question that belongs to a message: itself, or the one that it answers.
    pub fn question_of(&self, id: MessageId) -> Option<MessageId> {
        let message = self.message(id)?;
        if message.role == Role::User { Some(message.id) } else { message.parent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Cut, Sampling};

    #[test]
    fn what_is_deleted_does_not_leave_the_program() {
        let mut c = made(&[(1, 0), (2, 1), (3, 2), (4, 1), (5, 4)]);
        assert!(matches!(c.standing_only(), Cow::Borrowed(_)));
        c.apply(&Entry::Delete { id: 4 });
        let left = c.standing_only();
        assert_eq!(left.messages.iter().map(|m| m.id).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(left.deleted.is_empty() && left.head.is_some_and(|head| head < 4));
    }

    /// Messages as id and parent, odd ids being questions.
    fn made(messages: &[(MessageId, MessageId)]) -> Conversation {
        let mut c = Conversation::new(ConversationId::new(1, 1), 0, Sampling::default());
        for (id, parent) in messages {
            let parent = Some(*parent).filter(|p| *p > 0);
            let role = if id % 2 == 1 { Role::User } else { Role::Assistant };
            c.apply(&Entry::Message(Message::new(*id, parent, role, format!("text {id}"), 0)));
        }
        c
    }

    fn drawn(c: &Conversation) -> Vec<String> {
        let fork = |more: &bool| if *more { '│' } else { ' ' };
        c.tree(true).iter().map(|n| format!("{}{}", n.forks.iter().map(fork).collect::<String>(), n.id)).collect()
    }

    #[test]
    fn only_forks_are_indented_and_older_branches_come_first() {
        let c = made(&[(1, 0), (2, 1), (3, 2), (4, 3), (6, 3), (7, 6), (9, 2), (10, 9)]);
        assert_eq!(drawn(&c), ["1", "2", "│3", "││4", "│ 6", "│ 7", " 9", " 10"]);
        let begins: Vec<MessageId> = c.tree(true).iter().filter(|n| n.begins).map(|n| n.id).collect();
        assert_eq!(begins, [3, 4, 6, 9]);
        let shown: Vec<MessageId> = c.tree(true).iter().filter(|n| n.shown).map(|n| n.id).collect();
        assert_eq!(shown, [1, 2, 9, 10]);
    }

    #[test]
    fn damaged_parents_lose_no_message_and_a_long_line_is_no_depth() {
        let c = made(&[(1, 0), (2, 7), (3, 3), (5, 9)]);
        assert_eq!(c.tree(true).len(), 4);
        let long: Vec<(MessageId, MessageId)> = (1..=20_000).map(|id| (id, id - 1)).collect();
        let c = made(&long);
        assert!(c.tree(true).iter().all(|n| n.forks.is_empty()));
        assert_eq!((c.leaf_of(1), c.branch(1).len()), (20_000, 20_000));
    }

    #[test]
    fn a_copy_holds_the_path_and_with_the_rest_what_follows() {
        let mut c = made(&[(1, 0), (2, 1), (3, 2), (4, 3), (6, 3), (8, 1)]);
        c.title = Some("Foxes (branch)".into());
        c.system = "Be brief.".into();
        c.apply(&Entry::Cut(Cut { after: 2, tokens: 5, summary: None }));
        c.apply(&Entry::Cut(Cut { after: 8, tokens: 5, summary: None }));
        c.apply(&Entry::Delete { id: 6 });
        let new = ConversationId::new(2, 2);
        let ids = |c: &Conversation| c.messages.iter().map(|m| m.id).collect::<Vec<_>>();
        let path = c.copy_of(3, false, new.clone(), 9);
        assert_eq!((ids(&path), path.head, path.cuts.len()), (vec![1, 2, 3], Some(3), 1));
        let rest = c.copy_of(2, true, new.clone(), 9);
        assert_eq!((ids(&rest), rest.head), (vec![1, 2, 3, 4], Some(4)));
        assert_eq!((rest.id.clone(), rest.created, rest.system.as_str()), (new, 9, "Be brief."));
        assert_eq!(rest.title.as_deref(), Some("Foxes (branch)"));
    }
}
