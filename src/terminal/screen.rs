//! The full screen: what is drawn becomes one frame of bytes, which the writer's thread takes to the terminal.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use crossterm::queue;
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use super::writer::Writer;
use super::{modes, writer};

/// Columns and rows where a terminal does not know them.
const UNKNOWN: (u16, u16) = (80, 24);

/// Columns and rows of the terminal.
pub fn size() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => UNKNOWN,
    }
}

/// Bytes that are not written yet.
#[derive(Clone, Default)]
struct Page(Rc<RefCell<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The full screen.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Page>>,
    page: Page,
    writer: Writer,
    size: (u16, u16),
    mouse: bool,
}

impl Screen {
    /// Takes the terminal. `done` is told, on a thread of its own, when a frame has arrived or failed.
    ///
    /// # Errors
    /// If the terminal cannot be taken.
    pub fn enter(mouse: bool, done: impl Fn(io::Result<()>) + Send + 'static) -> io::Result<Self> {
        let writer = Writer::start(done)?;
        let page = Page::default();
        let size = size();
        let terminal = blank(&page, size)?;
        modes::take(mouse)?;
        Ok(Self { terminal, page, writer, size, mouse })
    }

    /// Columns and rows of what is drawn.
    pub fn size(&self) -> (u16, u16) {
        self.size
    }

    /// Draws with another size from now on.
    ///
    /// # Errors
    /// Never in practice: nothing is written.
    pub fn resize(&mut self, size: (u16, u16)) -> io::Result<()> {
        self.size = size;
        self.repaint()
    }

    /// Has every cell drawn anew by the next frame.
    ///
    /// # Errors
    /// Never in practice: nothing is written.
    pub fn repaint(&mut self) -> io::Result<()> {
        queue!(self.page, SetAttribute(Attribute::Reset), Clear(ClearType::All))?;
        self.terminal = blank(&self.page, self.size)?;
        Ok(())
    }

    /// Has bytes written with the next frame.
    pub fn send(&mut self, bytes: &[u8]) {
        self.page.0.borrow_mut().extend_from_slice(bytes);
    }

    /// Whether a frame can be drawn now: the terminal is ours and the last frame has arrived.
    pub fn is_ready(&self) -> bool {
        modes::is_ours() && writer::is_free()
    }

    /// Draws a frame and sends it off; the terminal shows it in one piece if it can. The screen must be ready.
    ///
    /// # Errors
    /// Never in practice: nothing is written here.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        queue!(self.page, BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        queue!(self.page, EndSynchronizedUpdate)?;
        self.writer.write(self.page.0.take());
        Ok(())
    }

    /// Takes the terminal back after [`super::leave`], or sets its modes anew after a stop.
    ///
    /// # Errors
    /// If it is gone.
    pub fn take_back(&mut self) -> io::Result<()> {
        modes::take(self.mouse)?;
        self.resize(size())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        modes::leave();
    }
}

/// A terminal of that size that believes itself empty. Its size is fixed, so that ratatui asks the real one
/// nothing: what is drawn has the size that the app knows, and a question would wait for an answer.
fn blank(page: &Page, (columns, rows): (u16, u16)) -> io::Result<Terminal<CrosstermBackend<Page>>> {
    let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, columns, rows)) };
    Terminal::with_options(CrosstermBackend::new(page.clone()), options)
}
