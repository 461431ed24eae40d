//! Messages that name their parents made a tree of ours: numbered so that every parent is older than its children.
//! Nothing here recurses, and circles are cut: the names come from files.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::draft::Words;
use crate::chat::MessageId;

/// A message as it is found.
pub(super) struct Node {
    pub key: String,
    pub parent: Option<String>,
    /// What comes in; none for one that only connects others.
    pub words: Option<Words>,
    pub at: i64,
}

/// The tree.
#[derive(Debug, Default)]
pub(super) struct Grafted {
    pub messages: Vec<(MessageId, Option<MessageId>, Words, i64)>,
    /// Which message a key became; one that only connects leads to the message above it.
    pub ids: HashMap<String, Option<MessageId>>,
    /// Places where a circle was cut.
    pub circles: usize,
    /// Messages whose parent is not there.
    pub orphans: usize,
}

/// Makes the tree.
pub(super) fn graft(nodes: &[Node]) -> Grafted {
    let mut index: HashMap<&str, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        index.entry(&node.key).or_insert(i);
    }
    let mut grafted = Grafted::default();
    let mut parents: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let parent = node.parent.as_deref().map(|key| index.get(key).copied());
        grafted.orphans += usize::from(parent == Some(None) && node.words.is_some());
        parents.push(parent.flatten());
    }
    let above = said_above(nodes, &parents);
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut ready = BinaryHeap::new();
    for (i, node) in nodes.iter().enumerate().filter(|(_, n)| n.words.is_some()) {
        match above[i] {
            Some(parent) => children[parent].push(i),
            None => ready.push(Reverse((node.at, i))),
        }
    }
    let mut ids: Vec<Option<MessageId>> = vec![None; nodes.len()];
    let mut unplaced = (0..nodes.len()).filter(|i| nodes[*i].words.is_some());
    loop {
        while let Some(Reverse((at, i))) = ready.pop() {
            let Some(words) = nodes[i].words.as_ref().filter(|_| ids[i].is_none()) else { continue };
            let id = MessageId::try_from(grafted.messages.len() + 1).unwrap_or(MessageId::MAX);
            // Before it has an id itself: it may follow itself.
            let parent = above[i].and_then(|p| ids[p]);
            ids[i] = Some(id);
            grafted.messages.push((id, parent, words.clone(), at));
            ready.extend(children[i].iter().map(|child| Reverse((nodes[*child].at, *child))));
        }
        // What is left hangs on a circle: its first message begins a branch.
        let Some(first) = unplaced.find(|i| ids[*i].is_none()) else { break };
        grafted.circles += 1;
        ready.push(Reverse((nodes[first].at, first)));
    }
    for (i, node) in nodes.iter().enumerate() {
        let id = ids[i].or_else(|| above[i].and_then(|p| ids[p]));
        grafted.ids.entry(node.key.clone()).or_insert(id);
    }
    grafted
}

/// For every node the nearest one above it that says something.
fn said_above(nodes: &[Node], parents: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut above: Vec<Option<Option<usize>>> = vec![None; nodes.len()];
    for start in 0..nodes.len() {
        let mut trail = Vec::new();
        let mut at = start;
        let found = loop {
            if let Some(known) = above[at] {
                break known;
            }
            // Until more is known; ends a circle of nodes that say nothing.
            above[at] = Some(None);
            trail.push(at);
            match parents[at] {
                None => break None,
                Some(parent) if nodes[parent].words.is_some() => break Some(parent),
                Some(parent) => at = parent,
            }
        };
        for i in trail {
            above[i] = Some(found);
        }
    }
    above.into_iter().map(Option::flatten).collect()
}
