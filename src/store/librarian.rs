//! The thread that lists and searches: it waits for no file that is being written, and nothing is written later because of it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::Duration;

use super::index::{Fault, Index};
use super::words::Words;
use crate::chat::StoreEvent;

/// How long files are taken in before somebody else may have a turn.
const TURN: Duration = Duration::from_millis(200);
/// Most places that are told.
const MOST: usize = 500;

/// What is asked of the thread.
pub enum Wish {
    /// Every conversation.
    List,
    /// Where words are; the number comes back with the answer.
    Search(u64, String),
}

/// Who hears the answers.
pub type Sink = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// The thread.
pub struct Librarian(Sender<Wish>);

impl Librarian {
    /// Starts it over a folder of conversations and the folder where the index is kept.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(folder: PathBuf, cache: Option<PathBuf>, sink: Sink) -> io::Result<Self> {
        let (wishes, queue) = mpsc::channel();
        let work = move || match Index::open(&folder, cache.as_deref()) {
            Ok(index) => Desk { index, sink, left: 0, searched: None }.work(&queue),
            Err(error) => (sink)(failed(format!("The conversations cannot be listed: {error}"))),
        };
        std::thread::Builder::new().name("index".to_owned()).spawn(work)?;
        Ok(Self(wishes))
    }

    /// Asks for something; never waits.
    pub fn wish(&self, wish: Wish) {
        let _ = self.0.send(wish);
    }
}

fn failed(reason: String) -> StoreEvent {
    StoreEvent::Failed { id: None, reason }
}

struct Desk {
    index: Index,
    sink: Sink,
    /// Files that are not taken in yet.
    left: usize,
    /// The last search, which is made once more when all is taken in.
    searched: Option<(u64, String)>,
}

impl Desk {
    fn work(mut self, queue: &Receiver<Wish>) {
        loop {
            let first = match queue.try_recv() {
                Err(TryRecvError::Empty) if self.left == 0 => queue.recv().map_err(|_| TryRecvError::Disconnected),
                other => other,
            };
            let first = match first {
                Err(TryRecvError::Disconnected) => return,
                other => other.ok(),
            };
            let wishes: Vec<Wish> = first.into_iter().chain(queue.try_iter()).collect();
            let list = wishes.iter().any(|wish| matches!(wish, Wish::List));
            // Of several searches only the last one is still looked at.
            let search = wishes.into_iter().rev().find_map(|wish| match wish {
                Wish::Search(number, query) => Some((number, query)),
                Wish::List => None,
            });
            let was = self.left;
            if list || was > 0 {
                self.list();
            }
            let again = was > 0 && self.left == 0;
            if let Some(search) = search.or_else(|| self.searched.take().filter(|_| again)) {
                self.search(search);
            }
        }
    }

    fn list(&mut self) {
        let told = self.index.refresh(TURN).or_else(|fault| match fault {
            Fault::Folder(_) => Err(fault),
            // What the index holds can be had without it.
            Fault::Base(_) => self.index.in_memory().and_then(|()| self.index.refresh(TURN)),
        });
        (self.sink)(match told {
            Ok((list, left)) => {
                self.left = left;
                StoreEvent::Listed(list)
            }
            Err(fault) => {
                self.left = 0;
                failed(fault.to_string())
            }
        });
    }

    fn search(&mut self, (number, query): (u64, String)) {
        let found = Words::parse(&query).map_or_else(|| Ok(Vec::new()), |words| self.index.search(&words, MOST));
        let all = self.left == 0;
        self.searched = Some((number, query)).filter(|_| !all);
        (self.sink)(match found {
            Ok(hits) => StoreEvent::Found { number, hits, all },
            Err(fault) => failed(fault.to_string()),
        });
    }
}
