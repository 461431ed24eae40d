//! What is typed and what waits is in the file before it can be lost.

use super::tests::Rig;
use super::*;
use crate::chat::{Entry, Finish, StoreRequest};

const WIDE: (u16, u16) = (160, 45);

/// The drafts that the file was told, in their order.
fn drafts(rig: &Rig) -> Vec<String> {
    let entries = rig.done.iter().flat_map(|e| match e {
        Effect::Store(StoreRequest::Append { entries, .. }) => entries.as_slice(),
        _ => &[],
    });
    let text = |e: &Entry| if let Entry::Draft { text } = e { Some(text.clone()) } else { None };
    entries.filter_map(text).collect()
}

#[test]
fn what_waits_to_be_sent_is_in_the_file_at_once() {
    let mut rig = Rig::ready(WIDE);
    rig.send("one");
    let job = rig.started();
    rig.send("two");
    rig.send("three");
    assert_eq!(drafts(&rig), ["two", "two\nthree"]);
    rig.text("four");
    rig.finish(job, Finish::Stop);
    // The question that is sent leaves the draft, what is being typed does not.
    assert_eq!(drafts(&rig).last().unwrap(), "three\nfour");
    rig.save();
    rig.started();
    rig.control('q');
    assert_eq!(drafts(&rig).last().unwrap(), "three\nfour", "also where the program ends");
    assert_eq!(rig.app.chat.conversation.draft, "three\nfour");
}

#[test]
fn typing_that_never_rests_is_saved_all_the_same() {
    let mut rig = Rig::ready(WIDE);
    for _ in 0..12 {
        rig.text("a");
        rig.wait(0.1);
    }
    assert!(!drafts(&rig).is_empty());
}
