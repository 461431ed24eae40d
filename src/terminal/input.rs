//! The thread that reads keys. It waits for the terminal itself and asks crossterm only when there is
//! something to read: after a hang-up crossterm's own waiting never ends and burns a core.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crossterm::event::Event;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;

/// The input thread's handle.
pub struct Input {
    wake: OwnedFd,
    orders: Sender<Order>,
    paused: Receiver<()>,
}

enum Order {
    Pause,
    Go,
}

impl Input {
    /// Starts reading. `sink` gets every event, `gone` is called when the terminal is.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(sink: impl Fn(Event) + Send + 'static, gone: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (wake_read, wake) = rustix::pipe::pipe()?;
        let (orders, order) = mpsc::channel();
        let (tell_paused, paused) = mpsc::channel();
        std::thread::Builder::new().name("input".to_owned()).spawn(move || {
            let stdin = io::stdin();
            loop {
                let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&wake_read, PollFlags::IN)];
                match poll(&mut fds, None) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return gone(),
                }
                let (keys, woken) = (fds[0].revents(), fds[1].revents());
                if woken.contains(PollFlags::IN) {
                    let mut byte = [0];
                    let _ = rustix::io::read(wake_read.as_fd(), &mut byte);
                    match order.recv() {
                        Ok(Order::Pause) => {
                            let _ = tell_paused.send(());
                            // Until it may go on it leaves every key to whoever has the terminal.
                            if order.recv().is_err() {
                                return;
                            }
                            continue;
                        }
                        Ok(Order::Go) => continue,
                        Err(_) => return,
                    }
                }
                if keys.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                    return gone();
                }
                // Asked with no time at all, crossterm does not look.
                while crossterm::event::poll(Duration::from_millis(1)).unwrap_or(false) {
                    match crossterm::event::read() {
                        Ok(event) => sink(event),
                        Err(_) => return gone(),
                    }
                }
            }
        })?;
        Ok(Self { wake, orders, paused })
    }

    /// Runs `meanwhile` while no key is read here.
    pub fn pause<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        let _ = self.orders.send(Order::Pause);
        let _ = rustix::io::write(&self.wake, &[1]);
        let _ = self.paused.recv_timeout(Duration::from_secs(1));
        let result = meanwhile();
        let _ = self.orders.send(Order::Go);
        result
    }
}
