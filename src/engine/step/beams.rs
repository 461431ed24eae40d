//! A beam search in the cache: a sequence a beam, reordered by giving cells other owners.

use std::time::Instant;

use super::Session;
use crate::chat::{Finish, Mode, Sampling, TokenRecord};
use crate::engine::job::{Beams, Job};
use crate::engine::protocol::{Alternative, BeamLine, Cells, EngineEvent, Problem};
use crate::engine::sampler::Words;
use crate::engine::sequences::{MAIN, SeqId, Token};
use crate::engine::strategy::beam::{Ended, Mark, Round, Rules, Search};
use crate::engine::utf8::Utf8Stream;

/// The end of a beam's text that is told live; the whole comes with the end.
const SHOWN: usize = 2000;

/// The best continuations of one beam.
type Row = Vec<(Token, f64)>;

impl Session<'_> {
    /// Begins a search behind the main sequence, whose logits are there.
    pub(super) fn begin_beams(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        let width = self.ledger.free_branches() / 2;
        if width == 0 {
            return Err(Problem::new(
                "Beam search needs the whole context of this model's sliding windows",
                "Start with swa_full = true (--swa-full), or choose another mode",
            ));
        }
        let search = Search::new(rules(job.sampler.sampling(), width, job.n()));
        let mut grammar = job.sampler.fresh_grammar(&self.vocabulary)?;
        if let Some(grammar) = &mut grammar {
            for token in &job.answer {
                grammar.accept(*token)?;
            }
        }
        let row = job.sampler.ranked(
            self.context.get_logits_ith(-1),
            self.ledger.tokens(),
            &self.vocabulary,
            grammar.as_ref(),
            search.row_size(),
        )?;
        let mut beams = Beams {
            search,
            seqs: vec![MAIN],
            grammars: vec![grammar],
            kept: Vec::new(),
            tickets: 0,
            agreed: 0,
            rounds: 0,
        };
        self.absorb(&mut job, &mut beams, &[row]).map(|done| {
            job.beams = Some(beams);
            if done { self.end_beams(job, Finish::Stop) } else { Some(job) }
        })
    }

    /// One round: every living beam gets its next token.
    pub(super) fn beam_step(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        let Some(mut beams) = job.beams.take() else { return Ok(Some(job)) };
        let sampling = job.sampler.sampling();
        if sampling.mode != Mode::Beam {
            return Ok(Some(self.collapse(job, &beams)));
        }
        let most = (self.ledger.free_branches() + beams.seqs.len() + beams.kept.len()) / 2;
        beams.search.rules = rules(sampling, most, job.n());
        let full = !self.ledger.has_room(beams.seqs.len());
        let rows = if full { Ok(None) } else { self.rows(&mut job, &beams) };
        match rows {
            Ok(Some(rows)) => {
                // A round's time depends on its rows, so it tells nothing of the threads.
                let done = self.absorb(&mut job, &mut beams, &rows)?;
                let loops = self.leader_loops(&mut job, &beams);
                job.beams = Some(beams);
                if loops {
                    return Ok(self.end_beams(job, Finish::Loop));
                }
                Ok(if done { self.end_beams(job, Finish::Stop) } else { Some(job) })
            }
            Ok(None) => {
                job.beams = Some(beams);
                Ok(self.end_beams(job, Finish::ContextFull))
            }
            Err(Stopped::Urgent) => {
                // What was decoded of this round is taken back; the request says what is to be done.
                self.ledger.repair(&mut self.context);
                job.beams = Some(beams);
                Ok(Some(job))
            }
            Err(Stopped::Failed(problem)) => Err(problem),
        }
    }

    /// Whether the leader repeats itself and is to be stopped. Looked at now and then: its past may change.
    fn leader_loops(&self, job: &mut Job, beams: &Beams) -> bool {
        const OFTEN: u32 = 16;
        if !beams.rounds.is_multiple_of(OFTEN) {
            return false;
        }
        job.guard.reset();
        let tokens = beams.search.live.first().map(|b| b.marks.as_slice()).unwrap_or_default();
        tokens.iter().any(|mark| self.loops(job, mark.token))
    }

    /// Decodes the last token of every beam and ranks what may follow; none if the cache is full.
    fn rows(&mut self, job: &mut Job, beams: &Beams) -> Result<Option<Vec<Row>>, Stopped> {
        let inputs: Vec<(SeqId, Token, usize)> = beams
            .seqs
            .iter()
            .zip(&beams.search.live)
            .filter_map(|(seq, beam)| Some((*seq, beam.marks.last()?.token, self.ledger.tail(*seq).len())))
            .map(|(seq, token, tail)| (seq, token, self.ledger.len() + tail))
            .collect();
        let together = self.pace.is_together(inputs.len());
        let began = Instant::now();
        let mut rows = Vec::with_capacity(inputs.len());
        let calls: Vec<&[(SeqId, Token, usize)]> =
            if together { vec![inputs.as_slice()] } else { inputs.chunks(1).collect() };
        for call in calls {
            self.fill(call.iter().map(|(seq, token, position)| (*token, *position, *seq, true)))?;
            match self.compute(call.len(), None) {
                Ok(()) => {}
                Err(llama_cpp_2::DecodeError::NoKvCacheSlot) => {
                    self.ledger.repair(&mut self.context);
                    return Ok(None);
                }
                Err(llama_cpp_2::DecodeError::Unknown(2)) => return Err(Stopped::Urgent),
                Err(error) => {
                    return Err(Stopped::Failed(Problem::new(
                        format!("llama.cpp could not compute the next step ({error})"),
                        "Ask again; if it stays so, restart the engine with F5",
                    )));
                }
            }
            for i in 0..call.len() {
                rows.push(self.rank(job, beams, rows.len(), i)?);
            }
        }
        self.pace.took(together, began.elapsed());
        // Only when every row is there: a round that was stopped is decoded again as a whole.
        for (seq, token, _) in inputs {
            self.ledger.push(seq, token);
        }
        Ok(Some(rows))
    }

    fn rank(&mut self, job: &mut Job, beams: &Beams, nth: usize, row: usize) -> Result<Row, Problem> {
        let mut history = Vec::new();
        if job.sampler.looks_back() {
            history.extend_from_slice(self.ledger.tokens());
            history.extend(beams.search.live[nth].marks.iter().map(|m| m.token));
        }
        let row = i32::try_from(row).unwrap_or(0);
        // The microscope follows the leader.
        if nth == 0 && self.watched > 0 && self.glance_is_due() {
            self.glance_at(&job.sampler, row, &history);
        }
        let logits = self.context.get_logits_ith(row);
        job.sampler.ranked(logits, &history, &self.vocabulary, beams.grammars[nth].as_ref(), beams.search.row_size())
    }

    /// Takes the rows of a round, moves the sequences after the beams, and tells. Whether the search is over.
    fn absorb(&mut self, job: &mut Job, beams: &mut Beams, rows: &[Row]) -> Result<bool, Problem> {
        let vocabulary = &self.vocabulary;
        let is_end = |token| vocabulary.is_end(token) && !job.ignore_eog;
        let (mut made, mut dropped) = (Vec::new(), Vec::new());
        let mut tickets = beams.tickets;
        let keep = |parent: usize| {
            tickets += 1;
            made.push((tickets, parent));
            tickets
        };
        let round = beams.search.absorb(rows, is_end, keep, |ticket| dropped.push(ticket));
        beams.tickets = tickets;
        self.drop_kept(beams, &dropped);
        for (ticket, parent) in made.into_iter().filter(|(ticket, _)| !dropped.contains(ticket)) {
            if let Some(seq) = self.ledger.branch(&mut self.context, beams.seqs[parent]) {
                beams.kept.push((ticket, seq));
            }
        }
        self.reorder(job, beams, &round)?;
        beams.rounds += 1;
        let gap_ms = job.clock.token();
        self.tell_beams(job, beams, gap_ms);
        Ok(round.done)
    }

    fn drop_kept(&mut self, beams: &mut Beams, dropped: &[u32]) {
        for (_, seq) in beams.kept.extract_if(.., |(ticket, _)| dropped.contains(ticket)) {
            self.ledger.free(&mut self.context, seq);
        }
    }

    /// Gives every beam a sequence that holds what it goes on from.
    fn reorder(&mut self, job: &Job, beams: &mut Beams, round: &Round) -> Result<(), Problem> {
        let old = std::mem::take(&mut beams.seqs);
        let mut grammars = std::mem::take(&mut beams.grammars);
        for (parent, seq) in old.iter().enumerate().filter(|(_, seq)| **seq != MAIN) {
            if !round.parents.contains(&parent) {
                self.ledger.free(&mut self.context, *seq);
            }
        }
        for (i, parent) in round.parents.iter().enumerate() {
            // The first child of a beam takes its sequence over, others get a copy. The main one stays as it is.
            let first = round.parents[..i].iter().all(|p| p != parent);
            let seq = if first && old[*parent] != MAIN {
                Some(old[*parent])
            } else {
                self.ledger.branch(&mut self.context, old[*parent])
            };
            beams
                .seqs
                .push(seq.ok_or_else(|| Problem::new("There is no sequence left for a beam", "Please report this"))?);
            let marks = &beams.search.live[i].marks;
            let mut grammar = None;
            if grammars[*parent].is_some() {
                // The last child takes the parent's state over; it cannot be copied.
                let last = !round.parents[i + 1..].contains(parent);
                grammar = if last { grammars[*parent].take() } else { self.replay(job, &marks[..marks.len() - 1])? };
                if let (Some(grammar), Some(mark)) = (&mut grammar, marks.last()) {
                    grammar.accept(mark.token)?;
                }
            }
            beams.grammars.push(grammar);
        }
        Ok(())
    }

    /// The state of the grammar behind these tokens: it cannot be copied, only walked again.
    fn replay(&self, job: &Job, marks: &[Mark]) -> Result<Option<crate::engine::sampler::Grammar>, Problem> {
        let mut grammar = job.sampler.fresh_grammar(&self.vocabulary)?;
        if let Some(grammar) = &mut grammar {
            for token in job.answer.iter().copied().chain(marks.iter().map(|m| m.token)) {
                grammar.accept(token)?;
            }
        }
        Ok(grammar)
    }

    fn tell_beams(&self, job: &mut Job, beams: &mut Beams, gap_ms: f64) {
        let agreed = beams.search.agreed();
        let first = beams.search.live.first().map(|b| b.marks.as_slice());
        let first = first.or(beams.search.ended.first().map(|e| e.marks.as_slice())).unwrap_or_default();
        let mut text = String::new();
        for mark in first.get(beams.agreed..agreed).unwrap_or_default() {
            text.push_str(&job.text.push(&self.vocabulary.text(mark.token)));
        }
        // Beams that disagree again behind what was told cannot be: it was common to all that there were.
        beams.agreed = beams.agreed.max(agreed);
        let line = |marks: &[Mark], score: f64, ended: bool| {
            let rest = self.text_of(marks.get(beams.agreed..).unwrap_or_default());
            let from = rest.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
            BeamLine { text: rest[from..].to_owned(), score: score as f32, ended }
        };
        let living = beams.search.live.iter().map(|b| line(&b.marks, beams.search.score_of(b), false));
        let ended = beams.search.ended.iter().map(|e| line(&e.marks, e.score, true));
        let tails = u32::try_from(self.ledger.used() - self.ledger.len()).unwrap_or(u32::MAX);
        let assistant = job.cells.assistant + tails;
        (self.sink)(EngineEvent::Beams {
            cells: Cells { assistant, ..job.cells },
            job: job.id,
            n: beams.rounds,
            gap_ms,
            agreed: text,
            beams: living.chain(ended).collect(),
            overtakes: beams.search.overtakes,
        });
    }

    fn text_of(&self, marks: &[Mark]) -> String {
        let mut stream = Utf8Stream::default();
        let mut text: String = marks.iter().map(|m| stream.push(&self.vocabulary.text(m.token))).collect();
        text.push_str(&stream.finish());
        text
    }

    fn record(&self, mark: &Mark) -> TokenRecord {
        let text = |token: Token| self.vocabulary.text(token);
        TokenRecord {
            bytes: u32::try_from(text(mark.token).len()).unwrap_or(0),
            logprob: mark.logprob,
            rank: mark.rank,
            others: mark
                .others
                .iter()
                .flatten()
                .map(|(t, log)| (String::from_utf8_lossy(&text(*t)).into_owned(), *log))
                .collect(),
        }
    }

    /// Ends a search: its best answers stay in the cache as branches, so that the next prompt goes on from any.
    pub(super) fn end_beams(&mut self, mut job: Job, finish: Finish) -> Option<Job> {
        let Some(mut beams) = job.beams.take() else { return self.end(job, finish) };
        self.ledger.repair(&mut self.context);
        let (mut made, mut dropped) = (Vec::new(), Vec::new());
        let mut tickets = beams.tickets;
        let keep = |live: usize| {
            tickets += 1;
            made.push((tickets, live));
            tickets
        };
        beams.search.end(keep, |ticket| dropped.push(ticket));
        let n_best = (job.sampler.sampling().n_best as usize).max(1);
        // The same text in other tokens is no other answer.
        let mut texts: Vec<String> = Vec::new();
        let (kept, superfluous) = std::mem::take(&mut beams.search.ended).into_iter().partition(|ended| {
            let text = self.text_of(&ended.marks);
            let new = texts.len() < n_best && !texts.contains(&text);
            texts.extend(new.then_some(text));
            new
        });
        beams.search.ended = kept;
        dropped.extend(superfluous.iter().map(|e: &Ended<u32>| e.kept));
        self.drop_kept(&mut beams, &dropped);
        for (live, seq) in beams.seqs.iter().enumerate().filter(|(_, seq)| **seq != MAIN) {
            match made.iter().find(|(ticket, at)| *at == live && !dropped.contains(ticket)) {
                Some((ticket, _)) => beams.kept.push((*ticket, *seq)),
                None => self.ledger.free(&mut self.context, *seq),
            }
        }
        let ended = &beams.search.ended;
        let best = ended.first().map(|e| e.marks.as_slice()).unwrap_or_default();
        let finish = match finish {
            Finish::Stop if ended.first().is_some_and(|e| !e.whole) => Finish::Length,
            other => other,
        };
        let begun = self.whole_text(&job.answer);
        let alternatives = ended.iter().map(|e| Alternative {
            text: begun.clone() + &self.text_of(&e.marks),
            score: e.score as f32,
            whole: e.whole,
            records: e.marks.iter().map(|m| self.record(m)).collect(),
        });
        let alternatives: Vec<Alternative> = alternatives.collect();
        let mut rest = String::new();
        for mark in best.get(beams.agreed..).unwrap_or_default() {
            rest.push_str(&job.text.push(&self.vocabulary.text(mark.token)));
        }
        job.cells.assistant += u32::try_from(best.len()).unwrap_or(0);
        job.answer.extend(best.iter().map(|m| m.token));
        job.rest = rest;
        self.end_with(job, finish, alternatives)
    }

    fn whole_text(&self, tokens: &[Token]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|t| self.vocabulary.text(*t)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Goes on with the leader alone, because the mode was changed.
    fn collapse(&mut self, mut job: Job, beams: &Beams) -> Job {
        let marks = beams.search.live.first().map(|b| b.marks.clone()).unwrap_or_default();
        if let Some(seq) = beams.seqs.first() {
            self.ledger.adopt(&mut self.context, *seq);
        }
        let mut text = String::new();
        for mark in marks.get(beams.agreed..).unwrap_or_default() {
            text.push_str(&job.text.push(&self.vocabulary.text(mark.token)));
        }
        job.answer.extend(marks.iter().map(|m| m.token));
        job.cells.assistant += u32::try_from(marks.len()).unwrap_or(0);
        job.next = marks.last().map(|m| m.token);
        job.sampler.went_on(&marks.iter().map(|m| m.token).collect::<Vec<_>>());
        let gap_ms = job.clock.token();
        (self.sink)(EngineEvent::Token { job: job.id, text, n: job.n(), gap_ms, record: None });
        job
    }
}

/// Why a round has no rows.
enum Stopped {
    /// Something urgent waits.
    Urgent,
    /// It cannot be computed.
    Failed(Problem),
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

fn rules(sampling: &Sampling, most: usize, begun: u32) -> Rules {
    Rules {
        width: (sampling.beams as usize).clamp(1, most),
        alpha: f64::from(sampling.length_penalty),
        stopping: sampling.early_stopping,
        longest: (sampling.max_tokens.saturating_sub(begun) as usize).max(1),
    }
}
