//! What is typed after a slash.

use super::commands::{COMMANDS, Command};
use super::event::Effect;
use super::overlay::Overlay;
use super::{App, Figures};
use crate::chat::{KNOBS, Knob};

/// Context sizes that `/set num_ctx` takes.
const CONTEXTS: std::ops::RangeInclusive<u32> = 256..=16_777_216;

impl App {
    /// Carries a slash command out. Tells whether it was one; what is not stays in the box and is never sent.
    pub(super) fn slash(&mut self, text: &str) -> bool {
        let text = text.trim_start_matches('/').trim();
        let (name, argument) = text.split_once(char::is_whitespace).map_or((text, ""), |(n, a)| (n, a.trim()));
        let name = name.to_lowercase();
        // A slider's whole name comes before a command's beginning: /mode is not short for /model.
        let whole = COMMANDS.iter().any(|r| r.slash == name || r.aliases.contains(&name.as_str()));
        if let Some(knob) = Knob::named(&name).filter(|_| !whole) {
            return self.slash_set(knob, argument);
        }
        match Command::by_slash(&name) {
            Ok(command) => self.slash_command(command, argument),
            Err(several) if several.is_empty() => {
                self.error(format!(
                    "There is no command /{name}. A space before the slash sends it as text; F1 lists the commands"
                ));
                false
            }
            Err(several) => {
                let names: Vec<String> = several.iter().map(|n| format!("/{n}")).collect();
                self.error(format!("/{name} may mean {}", names.join(", ")));
                false
            }
        }
    }

    fn slash_command(&mut self, command: Command, argument: &str) -> bool {
        match (command, argument) {
            (Command::Model, name) if !name.is_empty() => {
                self.effects.push(Effect::FindModel(name.to_owned()));
                self.tell(format!("Looking for {name}"));
            }
            (Command::System, text) if !text.is_empty() => self.set_system(text.to_owned()),
            (Command::Rename, title) if !title.is_empty() => {
                let id = self.chat.conversation.id.clone();
                self.rename(id, title);
            }
            (Command::Attach, files) if !files.is_empty() => self.attach(Effect::Attach(files.to_owned())),
            (Command::RunCommand, line) if !line.is_empty() => self.attach(Effect::Run(line.to_owned())),
            (Command::Search, words) if !words.is_empty() => self.search(words),
            (Command::Tags, tags) if !tags.is_empty() => {
                let id = self.chat.conversation.id.clone();
                self.set_tags(id, tags);
            }
            (Command::Export, how) if !how.is_empty() => self.export(how),
            (Command::Presets, name) if !name.is_empty() => self.preset(name),
            (Command::Samplers, stages) if !stages.is_empty() => self.set_order(stages),
            (Command::Bias, bias) if !bias.is_empty() => self.set_bias(bias),
            (Command::Grammar, file) if !file.is_empty() => self.set_grammar(file),
            (Command::Overflow, how) if !how.is_empty() => return self.set_overflow(how),
            (Command::Set, argument) if !argument.is_empty() => return self.slash_assign(argument),
            (command, "") => self.perform(command),
            (command, extra) => {
                self.error(format!("/{} takes nothing behind it, and '{extra}' stands there", command.row().slash));
                return false;
            }
        }
        true
    }

    /// Writes this conversation into a file.
    pub(super) fn export(&mut self, how: &str) {
        if self.chat.conversation.messages.is_empty() {
            self.tell("There is nothing to export yet");
            return;
        }
        self.effects.push(Effect::Export(Box::new(self.chat.conversation.clone()), how.to_owned()));
    }

    /// `/set temp 0.7`, `/set parameter temperature 0.7`, `/set system …`, `/set num_ctx 4096`.
    fn slash_assign(&mut self, argument: &str) -> bool {
        let argument = argument.strip_prefix("parameter ").unwrap_or(argument).trim();
        let (name, value) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
        if name == "system" {
            self.set_system(value.trim().to_owned());
            return true;
        }
        if ["num_ctx", "ctx", "ctx_size", "ctx-size"].contains(&name) {
            let Some(n) = value.trim().parse().ok().filter(|n| CONTEXTS.contains(n)) else {
                self.error(format!("{name} must be a number from {} to {}", CONTEXTS.start(), CONTEXTS.end()));
                return false;
            };
            if self.engine.info.as_ref().is_some_and(|info| n > info.n_ctx_train && !self.engine.may_go_beyond()) {
                self.overlay = Some(Overlay::Beyond { n_ctx: n, then: None });
            } else {
                self.set_context(n);
            }
            return true;
        }
        if let Some(knob) = Knob::named(name) {
            return self.slash_set(knob, value);
        }
        let names: Vec<&str> = KNOBS.iter().map(|s| s.name).collect();
        self.error(format!("There is no slider '{name}'; there are {}", names.join(", ")));
        false
    }

    fn slash_set(&mut self, knob: Knob, value: &str) -> bool {
        let spec = knob.spec();
        if value.is_empty() {
            self.tell(format!("{} is {}. {}", spec.name, spec.format(&self.chat.conversation.sampling), spec.help));
            return true;
        }
        let mut sampling = self.chat.conversation.sampling.clone();
        match spec.parse(&mut sampling, value) {
            Ok(()) => {
                let shown = spec.format(&sampling);
                self.set_sampling(|s| *s = sampling);
                self.tell(format!("{} is {shown} now", spec.name));
                true
            }
            Err(error) => {
                self.error(error.to_string());
                false
            }
        }
    }

    /// Tab after a slash: completes the name as far as it is certain. Tells whether there was one to complete.
    pub(super) fn complete_slash(&mut self) -> bool {
        let text = self.input.typed();
        let Some(begun) = text.strip_prefix('/').filter(|t| !t.contains(char::is_whitespace)) else { return false };
        let knobs = KNOBS.iter().map(|s| s.flag);
        let names: Vec<&str> =
            COMMANDS.iter().map(|r| r.slash).chain(knobs).filter(|n| !n.is_empty() && n.starts_with(begun)).collect();
        let Some(first) = names.first() else { return true };
        let common = first
            .char_indices()
            .map(|(i, c)| i + c.len_utf8())
            .take_while(|end| names.iter().all(|n| n.starts_with(&first[..*end])));
        let end = common.last().unwrap_or(0);
        let whole = names.len() == 1;
        self.input.set(&format!("/{}{}", &first[..end], if whole { " " } else { "" }));
        if !whole {
            self.tell(names.iter().map(|n| format!("/{n}")).collect::<Vec<_>>().join("  "));
        }
        true
    }

    /// The settings and figures of this conversation as lines to read.
    pub(super) fn show_facts(&mut self) {
        let mut lines = Vec::new();
        if let Some(info) = &self.engine.info {
            lines.push(format!("model      {} ({}), {} threads", info.name, info.device, info.threads));
            lines.push(format!("context    {} of {} tokens trained", info.n_ctx, info.n_ctx_train));
            lines.push(format!(
                "KV cache   {} cells used, {} bytes a token, {}",
                self.engine.cells.total(),
                info.kv_bytes_per_token,
                info.kv_type
            ));
            lines.extend(info.notes.iter().map(|n| format!("           {n}")));
        }
        lines.push(String::new());
        let sampling = &self.chat.conversation.sampling;
        lines.extend(KNOBS.iter().map(|s| format!("{:<19} {:<14} {}", s.name, s.format(sampling), s.help)));
        lines.push(format!("{:<19} {}", "samplers", sampling.order_text()));
        if !sampling.bias.is_empty() {
            lines.push(format!("{:<19} {}", "logit_bias", sampling.bias_text()));
        }
        if !sampling.grammar.is_empty() {
            lines.push(format!("{:<19} {}", "grammar", sampling.grammar.lines().next().unwrap_or_default()));
        }
        let made = self.chat.conversation.path().iter().rev().find_map(|m| m.made.clone());
        if let Some(made) = made {
            let f = Figures::of(made.usage, made.timings);
            lines.push(String::new());
            lines.push(format!("last answer: {}, seed {}, {}", made.finish.label(), made.seed, made.model));
            lines.push(format!(
                "prompt {} tokens: {} reused, {} read in {:.0} ms; first token after {:.0} ms",
                f.usage.prompt_tokens,
                f.usage.reused_tokens,
                f.usage.fresh_tokens(),
                f.timings.prefill_ms,
                f.timings.ttft_ms
            ));
            lines.push(format!(
                "answer {} tokens in {:.0} ms: {:.1} tokens/s, {:.1} ms a token, p95 {:.1} ms",
                f.usage.completion_tokens,
                f.timings.decode_ms,
                f.timings.tokens_per_second,
                f.timings.tpot_ms,
                f.timings.itl_p95_ms
            ));
        }
        self.overlay = Some(Overlay::Text { title: "Settings and figures", lines, top: 0 });
    }
}
