//! `llmchat probe`: the distribution of the next token, stage by stage.

use std::fmt::Write;
use std::process::ExitCode;

use super::Stop;
use super::context::Context;
use super::out::print;
use super::running::{Ask, Running};
use crate::chat::Role;
use crate::engine::protocol::{EngineEvent, Glance, Prompt, Turn};
use crate::text::sanitise_line;

/// Columns of a bar.
const BAR: usize = 24;

/// How to look.
#[derive(Debug)]
pub struct Options {
    /// Put the text into the chat template.
    pub chat: bool,
    /// One JSON object instead of the table.
    pub json: bool,
    /// How many candidates are shown.
    pub candidates: u32,
}

/// Prints what may follow the text, and what each stage of the chain leaves of it.
pub fn run(context: &Context, text: &str, options: &Options) -> Result<ExitCode, Stop> {
    let model = context.model().map_err(|p| Stop::Failed(p.to_string()))?;
    let mut running = Running::start(&context.engine_command(), &model, &context.params())?;
    let prompt = if options.chat {
        let turns = vec![Turn { role: Role::User, text: text.to_owned() }];
        Prompt::Chat { system: context.settings.system_prompt.clone(), turns }
    } else {
        Prompt::Raw(text.to_owned())
    };
    // By hand the engine waits with the candidates of the first token and chooses none.
    let sampling = context.settings.sampling.clone().by_hand();
    running.watch(options.candidates);
    let mut glance = None;
    running.generate(Ask { prompt, sampling: &sampling, ignore_eog: false, records: None }, |event| {
        if let EngineEvent::Glance(seen) = event {
            glance = Some(seen.clone());
        }
    })?;
    let glance: Glance =
        glance.ok_or_else(|| Stop::Failed("The engine has shown no candidates. Try again".to_owned()))?;
    if glance.left() == 0 {
        return Err(Stop::Failed("The settings leave no token to choose: bias or grammar forbid every one".to_owned()));
    }
    if options.json {
        print(&format!("{}\n", serde_json::to_string(&glance).unwrap_or_default()))?;
    } else {
        print(&table(&glance))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(glance: &Glance) -> String {
    let mut out = format!("{} tokens, entropy {:.2} bits\n", glance.vocabulary, glance.entropy);
    for cut in &glance.cuts {
        let _ = writeln!(out, "  after {:<12} {:>7} left", cut.stage.name(), cut.kept);
    }
    let _ = writeln!(out, "{:>8}  {:>8}  {:<BAR$}  token", "model", "chosen", "");
    for seen in &glance.candidates {
        let filled = (f64::from(seen.before) * BAR as f64).round() as usize;
        let bar = format!("{}{}", "#".repeat(filled.min(BAR)), ".".repeat(BAR - filled.min(BAR)));
        let cut = seen.cut.map_or(String::new(), |stage| format!("  cut by {}", stage.name()));
        let text = sanitise_line(&format!("{:?}", seen.text));
        let _ = writeln!(out, "{:>7.2}%  {:>7.2}%  {bar}  {text}{cut}", 100.0 * seen.before, 100.0 * seen.after);
    }
    out
}
