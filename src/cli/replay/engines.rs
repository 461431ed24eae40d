//! The engine that an answer needs: its model, its context. One at a time, kept while answers need the same.

use std::path::PathBuf;

use clap::ArgMatches;

use crate::chat::{Made, Origin, Preset, Rope};
use crate::cli::context::Context;
use crate::cli::running::{Failure, Running};
use crate::cli::{Stop, args};
use crate::config::Settings;
use crate::engine::cores;
use crate::engine::protocol::ContextParams;

/// What an engine was started for.
type Wanted = (PathBuf, ContextParams);

/// Starts engines.
pub struct Engines<'a> {
    context: &'a Context,
    matches: &'a ArgMatches,
    /// The one that runs, or why it does not.
    now: Option<(Wanted, Result<Running, String>)>,
}

impl<'a> Engines<'a> {
    /// None runs yet.
    pub fn new(context: &'a Context, matches: &'a ArgMatches) -> Self {
        Self { context, matches, now: None }
    }

    /// The engine for an answer; within, why it cannot be had.
    ///
    /// # Errors
    /// If the user interrupts, or a flag is wrong.
    pub fn of(&mut self, made: &Made) -> Result<Result<&mut Running, String>, Stop> {
        let model = match self.model(made) {
            Ok(model) => model,
            Err(why) => return Ok(Err(why)),
        };
        let settings = self.settings(made.origin.as_deref())?;
        let wanted = (model, Context { settings, ..self.context.clone() }.params());
        if self.now.as_ref().is_none_or(|(now, _)| *now != wanted) {
            self.forget();
            let running = match Running::start(&self.context.engine_command(), &wanted.0, &wanted.1) {
                Ok(running) => Ok(running),
                Err(Failure::Problem(problem)) => Err(problem.to_string()),
                Err(Failure::Interrupted) => return Err(Stop::Interrupted),
            };
            self.now = Some((wanted, running));
        }
        match &mut self.now {
            Some((_, Ok(running))) => Ok(Ok(running)),
            Some((_, Err(why))) => Ok(Err(why.clone())),
            None => Ok(Err("there is no engine".to_owned())),
        }
    }

    /// Ends the engine that runs: it failed, or another one is needed.
    pub fn forget(&mut self) {
        if let Some((_, Ok(running))) = self.now.take() {
            running.close();
        }
    }

    /// The model that a flag names, or the one that made the answer.
    fn model(&self, made: &Made) -> Result<PathBuf, String> {
        if self.matches.get_one::<String>("model").is_some() {
            return self.context.model().map_err(|problem| problem.to_string());
        }
        // The exact name and no part of it: another model is nobody's wish here.
        let found = self.context.finder().list().into_iter().find(|(name, _)| *name == made.model);
        let last = || self.context.model().ok().filter(|p| p.file_stem().is_some_and(|s| *s == *made.model));
        found.map(|(_, path)| path).or_else(last).ok_or_else(|| {
            format!("the model '{}' is not among those of 'llmchat models'. Name a file with -m", made.model)
        })
    }

    /// The settings of the program, over them those that the answer was made with, over them the flags.
    fn settings(&self, origin: Option<&Origin>) -> Result<Settings, Stop> {
        let mut settings = self.context.settings.clone();
        if let Some(origin) = origin {
            put(origin, &mut settings);
            let own = self.context.presets().0;
            args::apply(self.matches, &mut settings, &Preset::with_own(&own)).map_err(Stop::Usage)?;
        }
        Ok(settings)
    }
}

/// What an answer was made with becomes the settings.
fn put(origin: &Origin, settings: &mut Settings) {
    let known = |n: u32| Some(n).filter(|n| *n > 0);
    if let Some(n_ctx) = known(origin.n_ctx) {
        settings.ctx_size = Some(n_ctx);
        // Whoever made it has said yes to it.
        settings.beyond_trained = true;
    }
    settings.batch_size = known(origin.n_batch).unwrap_or(settings.batch_size);
    settings.ubatch_size = known(origin.n_ubatch).unwrap_or(settings.ubatch_size);
    // More threads than there are cores here would only be slow; they do not decide much.
    settings.threads = known(origin.threads).map_or(settings.threads, |n| n.min(cores()));
    settings.gpu_layers = origin.gpu_layers;
    settings.kv = origin.kv;
    settings.flash_attn = origin.flash_attn;
    settings.swa_full = origin.swa_full;
    // Anybody may have written the file, and llama.cpp checks nothing.
    let within = |n: f32, (least, most): (f32, f32)| if (least..=most).contains(&n) { n } else { 0.0 };
    settings.rope = Rope {
        freq_base: within(origin.rope.freq_base, Rope::BASES),
        freq_scale: within(origin.rope.freq_scale, Rope::SCALES),
        ..origin.rope
    };
}
