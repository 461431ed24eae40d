//! The list as it is shown: its order, its groups, what is looked for in it, how conversations are filed.

use crossterm::event::{KeyCode, KeyEvent};
use jiff::Timestamp;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use super::event::Effect;
use super::library::Library;
use super::overlay::{Asked, Overlay};
use super::{App, Command, is_text};
use crate::chat::{ConversationId, Edit, Entry, Filing, Hit, StoreRequest, Summary};

/// Where a conversation stands in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Above all others.
    Pinned,
    /// Used today,
    Today,
    /// yesterday,
    Yesterday,
    /// within a week,
    Day(Weekday),
    /// or in that month of a year.
    Month(i8, i16),
    /// Put away.
    Archived,
    /// What is looked for is like its title or tags,
    Titled,
    /// or stands in its messages.
    Said,
}

impl Group {
    fn of(summary: &Summary, today: Date, zone: &TimeZone) -> Self {
        if summary.filing.archived {
            return Self::Archived;
        }
        if summary.filing.pinned {
            return Self::Pinned;
        }
        let day = date(summary.changed, zone);
        match today.duration_since(day).as_hours() / 24 {
            ..=0 => Self::Today,
            1 => Self::Yesterday,
            2..=6 => Self::Day(day.weekday()),
            _ => Self::Month(day.month(), day.year()),
        }
    }

    /// Its heading.
    pub fn title(self) -> String {
        const MONTHS: [&str; 12] = [
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ];
        match self {
            Self::Pinned => "Pinned".to_owned(),
            Self::Today => "Today".to_owned(),
            Self::Yesterday => "Yesterday".to_owned(),
            Self::Day(day) => format!("{day:?}"),
            Self::Month(month, year) => {
                let month = usize::try_from(month).unwrap_or(1).clamp(1, 12);
                format!("{} {year}", MONTHS[month - 1])
            }
            Self::Archived => "Archived".to_owned(),
            Self::Titled => "By title".to_owned(),
            Self::Said => "By what was said".to_owned(),
        }
    }
}

fn date(ms: i64, zone: &TimeZone) -> Date {
    Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned_datetime(zone.clone()).date()
}

/// What is looked for in the list.
#[derive(Debug, Default)]
pub struct Filter {
    /// As it is typed.
    pub query: String,
    /// Keys go to it.
    pub typing: bool,
    /// The search in the texts that runs for it.
    number: u64,
    hits: Vec<Hit>,
}

impl Library {
    /// The conversations in the order in which they are shown, as places among the items. Keeps the same one chosen.
    pub(super) fn arrange(&mut self) {
        let chosen = self.chosen().map(|s| s.id.clone());
        let seen = |s: &&Summary| self.archived || !s.filing.archived;
        let place = |s: &Summary| (s.filing.archived, !s.filing.pinned);
        if self.filter.query.trim().is_empty() {
            let mut shown: Vec<usize> = (0..self.items.len()).filter(|n| seen(&&self.items[*n])).collect();
            // The store gives the youngest first, and that order stays within a group.
            shown.sort_by_key(|n| place(&self.items[*n]));
            self.titled = shown.len();
            self.shown = shown;
        } else {
            let (titled, said) = self.matching();
            self.titled = titled.len();
            self.shown = [titled, said].concat();
        }
        let at = chosen.and_then(|id| self.shown.iter().position(|n| self.items[*n].id == id));
        self.at = at.unwrap_or(self.at).min(self.shown.len().saturating_sub(1));
    }

    /// Those whose titles and tags are like the query, the most alike first, and the others in which it stands.
    fn matching(&self) -> (Vec<usize>, Vec<usize>) {
        let pattern = Pattern::parse(&self.filter.query, CaseMatching::Ignore, Normalization::Smart);
        let mut matcher = Matcher::new(Config::DEFAULT);
        let mut letters = Vec::new();
        let mut scored: Vec<(u32, usize)> = Vec::new();
        for (n, item) in self.items.iter().enumerate() {
            let tags: String = item.filing.tags.iter().map(|tag| format!(" #{tag}")).collect();
            let text = format!("{}{tags}", item.title);
            if let Some(score) = pattern.score(Utf32Str::new(&text, &mut letters), &mut matcher) {
                scored.push((score, n));
            }
        }
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let titled: Vec<usize> = scored.into_iter().map(|(_, n)| n).collect();
        let mut said = Vec::new();
        for hit in &self.filter.hits {
            let place = self.items.iter().position(|s| s.id == hit.id);
            said.extend(place.filter(|n| !titled.contains(n) && !said.contains(n)));
        }
        (titled, said)
    }

    /// The conversations that are shown.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = &Summary> {
        self.shown.iter().map(|n| &self.items[*n])
    }

    fn group(&self, at: usize, wall_ms: i64) -> Option<Group> {
        let item = &self.items[*self.shown.get(at)?];
        Some(if self.filter.query.trim().is_empty() {
            Group::of(item, date(wall_ms, &self.zone), &self.zone)
        } else if at < self.titled {
            Group::Titled
        } else {
            Group::Said
        })
    }

    /// What was found in the texts of the one that is chosen.
    fn hit(&self) -> Option<&Hit> {
        let id = &self.chosen().filter(|_| self.at >= self.titled)?.id;
        self.filter.hits.iter().find(|hit| hit.id == *id)
    }

    /// Takes the places where the filter's words are said; tells whether they were for it.
    pub(super) fn found(&mut self, number: u64, hits: &mut Vec<Hit>) -> bool {
        let ours = number == self.filter.number && !self.filter.query.is_empty();
        if ours {
            self.filter.hits = std::mem::take(hits);
            self.arrange();
        }
        ours
    }
}

impl App {
    /// The group of the conversation at a place of the list.
    pub fn group(&self, at: usize) -> Option<Group> {
        self.library.group(at, self.now.wall_ms)
    }

    /// A key while something is looked for in the list. Tells whether it was for that.
    pub(super) fn filter_key(&mut self, key: &KeyEvent) -> bool {
        if !self.library.filter.typing {
            return false;
        }
        match key.code {
            KeyCode::Backspace => {
                if self.library.filter.query.pop().is_none() {
                    self.library.filter.typing = false;
                }
            }
            KeyCode::Char(c) if is_text(key) => self.library.filter.query.push(c),
            KeyCode::Tab => {
                self.library.filter.typing = false;
                return true;
            }
            _ => return false,
        }
        self.filter_changed();
        true
    }

    pub(super) fn filter_changed(&mut self) {
        self.library.filter.hits.clear();
        self.library.filter.number = self.next_number();
        self.library.at = 0;
        let query = self.library.filter.query.clone();
        if !query.trim().is_empty() {
            let number = self.library.filter.number;
            self.effects.push(Effect::Store(StoreRequest::Search { number, query }));
        }
        self.library.shown.clear();
        self.library.arrange();
    }

    /// Ends looking for something in the list; tells whether something was looked for.
    pub(super) fn end_filter(&mut self) -> bool {
        let was = self.library.filter.typing || !self.library.filter.query.is_empty();
        if was {
            self.library.filter = Filter::default();
            self.library.arrange();
        }
        was
    }

    /// Carries out what is asked for in the list, or of the open conversation with a slash.
    pub(super) fn list_command(&mut self, command: Command) {
        let target = self.list_target();
        match command {
            Command::ListUp => self.library.at = self.library.at.saturating_sub(1),
            Command::ListDown => {
                self.library.at = (self.library.at + 1).min(self.library.shown.len().saturating_sub(1));
            }
            Command::ListPageUp => self.library.at = self.library.at.saturating_sub(self.view_height()),
            Command::ListPageDown => {
                let to = self.library.at + self.view_height();
                self.library.at = to.min(self.library.shown.len().saturating_sub(1));
            }
            Command::Filter => self.library.filter.typing = true,
            Command::ShowArchived => {
                self.library.archived = !self.library.archived;
                self.library.arrange();
            }
            Command::ListRestore => self.restore(),
            _ => {
                if let Some((id, title, filing)) = target {
                    self.list_one(command, id, &title, filing);
                }
            }
        }
    }

    /// The conversation that a command of the list is about.
    fn list_target(&self) -> Option<(ConversationId, String, Filing)> {
        if self.focus == super::Focus::List {
            return self.library.chosen().map(|s| (s.id.clone(), s.title.clone(), s.filing.clone()));
        }
        let c = &self.chat.conversation;
        Some((c.id.clone(), self.chat.title().to_owned(), c.filing.clone()))
    }

    fn list_one(&mut self, command: Command, id: ConversationId, title: &str, mut filing: Filing) {
        match command {
            Command::Open => {
                let place = self.library.hit().and_then(|hit| hit.message);
                self.end_filter();
                self.open_at(&id, place);
            }
            Command::ListRename => self.ask_text(Asked::Title(id), title),
            Command::ListDelete => self.overlay = Some(Overlay::Delete(id, title.to_owned())),
            Command::Tags => self.ask_text(Asked::Tags(id), &filing.typed()),
            Command::Pin => {
                filing.pinned = !filing.pinned;
                self.tell(if filing.pinned {
                    "It stands above the others now"
                } else {
                    "It stands among the others again"
                });
                self.change(id, Edit::Filing, Entry::Filed(filing));
            }
            Command::Archive => {
                filing.archived = !filing.archived;
                let told =
                    if filing.archived { "Archived; A in the list shows what is" } else { "It is in the list again" };
                self.tell(told);
                self.change(id, Edit::Filing, Entry::Filed(filing));
            }
            _ => {}
        }
    }

    pub(super) fn set_tags(&mut self, id: ConversationId, text: &str) {
        let there = self.library.items.iter().find(|s| s.id == id).map(|s| s.filing.clone());
        let filing = self.chat_mut(&id).map(|chat| chat.conversation.filing.clone()).or(there).unwrap_or_default();
        let filing = Filing { tags: Filing::tags_of(text), ..filing };
        self.change(id, Edit::Filing, Entry::Filed(filing));
    }
}
