//! What waits for the loop. Keys, signals and answers of the store come before the engine's news and are never
//! held up; of the engine only so much waits that memory stays bounded, and then its reader does.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::engine::protocol::EngineNews;

/// Most news of the engine that wait.
const WAITING: usize = 4096;

/// The queue: `M` is everything that is not the engine's.
pub struct Queue<M> {
    inner: Mutex<Inner<M>>,
    came: Condvar,
    taken: Condvar,
}

struct Inner<M> {
    messages: VecDeque<M>,
    news: VecDeque<EngineNews>,
    engine: u64,
}

/// What comes out of the queue.
#[derive(Debug, PartialEq)]
pub enum Next<M> {
    /// Not the engine's.
    Message(M),
    /// Of the engine that runs now.
    News(EngineNews),
    /// Nothing came in time.
    Late,
}

impl<M> Default for Queue<M> {
    fn default() -> Self {
        let inner = Inner { messages: VecDeque::new(), news: VecDeque::new(), engine: 0 };
        Self { inner: Mutex::new(inner), came: Condvar::new(), taken: Condvar::new() }
    }
}

impl<M> Queue<M> {
    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message; never waits.
    pub fn push(&self, message: M) {
        self.lock().messages.push_back(message);
        self.came.notify_one();
    }

    /// Announces another engine and gives its number. What older ones said and say means nothing any more.
    pub fn next_engine(&self) -> u64 {
        let mut inner = self.lock();
        inner.engine += 1;
        inner.news.clear();
        self.taken.notify_all();
        inner.engine
    }

    /// Adds news of an engine; waits while there are too many.
    pub fn push_news(&self, engine: u64, news: EngineNews) {
        let mut inner = self.lock();
        while inner.engine == engine && inner.news.len() >= WAITING {
            inner = self.taken.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        if inner.engine == engine {
            inner.news.push_back(news);
            self.came.notify_one();
        }
    }

    /// Takes what is next; waits for it until then, for ever with `None`.
    pub fn next(&self, until: Option<Instant>) -> Next<M> {
        let mut inner = self.lock();
        loop {
            if let Some(message) = inner.messages.pop_front() {
                return Next::Message(message);
            }
            if let Some(news) = inner.news.pop_front() {
                self.taken.notify_one();
                return Next::News(news);
            }
            inner = match until.map(|at| at.saturating_duration_since(Instant::now())) {
                None => self.came.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Next::Late,
                Some(left) => self.came.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    fn news(n: usize) -> EngineNews {
        EngineNews::Garbage(n.to_string())
    }

    #[test]
    fn messages_come_first() {
        let queue = Queue::default();
        let engine = queue.next_engine();
        queue.push_news(engine, news(1));
        queue.push('k');
        assert_eq!(queue.next(None), Next::Message('k'));
        assert_eq!(queue.next(None), Next::News(news(1)));
        assert_eq!(queue.next(Some(Instant::now())), Next::Late);
    }

    #[test]
    fn a_flood_waits_and_loses_nothing() {
        let queue = Arc::new(Queue::<()>::default());
        let engine = queue.next_engine();
        let flood = Arc::clone(&queue);
        let thread = std::thread::spawn(move || (0..WAITING * 3).for_each(|n| flood.push_news(engine, news(n))));
        for n in 0..WAITING * 3 {
            assert_eq!(queue.next(None), Next::News(news(n)));
            assert!(queue.lock().news.len() <= WAITING);
        }
        assert!(thread.join().is_ok());
    }

    #[test]
    fn an_engine_that_was_replaced_is_not_heard_and_does_not_wait() {
        let queue = Arc::new(Queue::<()>::default());
        let old = queue.next_engine();
        (0..WAITING).for_each(|n| queue.push_news(old, news(n)));
        let flood = Arc::clone(&queue);
        let (sender, done) = mpsc::channel();
        std::thread::spawn(move || {
            flood.push_news(old, news(0));
            sender.send(())
        });
        let new = queue.next_engine();
        assert!(done.recv().is_ok());
        queue.push_news(new, news(7));
        assert_eq!(queue.next(None), Next::News(news(7)));
        assert_eq!(queue.next(Some(Instant::now())), Next::Late);
    }
}
