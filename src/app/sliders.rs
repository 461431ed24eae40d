//! The sliders, and what else decides how tokens are chosen: presets, the order of the chain, bias, grammar.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::event::Effect;
use super::overlay::Overlay;
use super::{App, Focus};
use crate::chat::{Bias, KNOBS, Kind, Knob, Preset, Sampling, Spec, Stage, first_knobs};
use crate::engine::protocol::{Problem, Request};

impl App {
    /// The sliders that are shown: the ones that matter first in this mode, or all.
    pub fn sliders(&self) -> Vec<&'static Spec> {
        if self.all_knobs {
            return KNOBS.iter().collect();
        }
        first_knobs(self.chat.conversation.sampling.mode).iter().map(|k| k.spec()).collect()
    }

    /// The slider that is chosen.
    pub fn slider(&self) -> &'static Spec {
        let shown = self.sliders();
        shown.iter().find(|s| s.knob == self.knob).copied().unwrap_or(Knob::Mode.spec())
    }

    pub(super) fn choose_knob(&mut self, by: isize) {
        let shown = self.sliders();
        let chosen = self.slider().knob;
        let at = shown.iter().position(|s| s.knob == chosen).unwrap_or(0);
        let n = isize::try_from(shown.len()).unwrap_or(1);
        let to = (isize::try_from(at).unwrap_or(0) + by).rem_euclid(n);
        self.knob = usize::try_from(to).ok().and_then(|to| shown.get(to)).map_or(Knob::Mode, |s| s.knob);
        self.number.clear();
    }

    /// Changes the chosen slider; a running answer obeys from its next token on.
    pub(super) fn slide(&mut self, change: impl FnOnce(&mut Sampling, &'static Spec)) {
        self.number.clear();
        let spec = self.slider();
        self.set_sampling(|sampling| change(sampling, spec));
    }

    /// Changes the settings of this conversation.
    pub(super) fn set_sampling(&mut self, change: impl FnOnce(&mut Sampling)) {
        if !self.chat.is_ours() {
            self.error("This conversation is only shown here; it cannot be changed");
            return;
        }
        let mut sampling = self.chat.conversation.sampling.clone();
        change(&mut sampling);
        if self.chat.conversation.sampling != sampling {
            let now = self.now.mono;
            self.chat.slide(sampling, now, &mut self.effects);
            self.steer();
            self.look();
        }
    }

    /// Digits on a slider. Tells whether the key was one.
    pub(super) fn slider_key(&mut self, key: &KeyEvent) -> bool {
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return false;
        }
        let spec = self.slider();
        let numeric = !matches!(spec.kind, Kind::Choice(_));
        match key.code {
            KeyCode::Char(c) if numeric && (c.is_ascii_digit() || c == '.' || (c == '-' && self.number.is_empty())) => {
                if self.number.len() < 12 {
                    self.number.push(c);
                }
                true
            }
            KeyCode::Backspace if !self.number.is_empty() => self.number.pop().is_some(),
            KeyCode::Enter if !self.number.is_empty() => {
                let text = std::mem::take(&mut self.number);
                let mut sampling = self.chat.conversation.sampling.clone();
                match spec.parse(&mut sampling, &text) {
                    Ok(()) => self.set_sampling(|s| *s = sampling),
                    Err(error) => self.error(error.to_string()),
                }
                true
            }
            KeyCode::Enter => {
                self.go(Focus::Input);
                true
            }
            KeyCode::Esc if !self.number.is_empty() => {
                self.number.clear();
                true
            }
            KeyCode::Char(_) if super::keys::command(key, super::Scope::Sliders).is_none() => {
                self.tell("You are on the sliders; Enter or Esc goes back to typing");
                true
            }
            _ => false,
        }
    }

    /// Every preset: those of the program, the user's, and what the model's maker recommends.
    pub fn presets(&self) -> Vec<Preset> {
        let recommended = self.engine.info.iter().filter(|i| !i.recommended.is_empty()).map(|i| Preset {
            name: "model".to_owned(),
            about: "What the model's maker recommends.".to_owned(),
            values: i.recommended.clone(),
        });
        Preset::with_own(&self.own_presets).into_iter().chain(recommended).collect()
    }

    /// Takes a preset by its name; `save NAME` makes one of the settings as they are.
    pub(super) fn preset(&mut self, argument: &str) {
        if let Some(name) = argument.strip_prefix("save").filter(|n| n.is_empty() || n.starts_with(' ')).map(str::trim)
        {
            let fits = |c: char| c.is_alphanumeric() || " -_.+".contains(c);
            if name.is_empty() || name.chars().count() > 40 || !name.chars().all(fits) {
                self.error("A preset needs a name of letters, digits and -_.+, at most 40: /preset save NAME");
                return;
            }
            let preset = Preset::of(name, &self.chat.conversation.sampling);
            self.own_presets.retain(|p| p.name != name);
            self.own_presets.push(preset);
            self.effects.push(Effect::SavePresets(self.own_presets.clone()));
            return;
        }
        let presets = self.presets();
        if let Some(preset) = presets.iter().find(|p| p.name.eq_ignore_ascii_case(argument)) {
            self.take_preset(preset);
        } else {
            let names: Vec<&str> = presets.iter().map(|p| p.name.as_str()).collect();
            self.error(format!("There is no preset '{argument}'; there are {}", names.join(", ")));
        }
    }

    pub(super) fn take_preset(&mut self, preset: &Preset) {
        let changes = preset.changes(&self.chat.conversation.sampling);
        match preset.applied(&self.chat.conversation.sampling) {
            Ok(sampling) => {
                self.set_sampling(|s| *s = sampling);
                let told: Vec<String> = changes.iter().map(|c| format!("{} {}", c.label, c.new)).collect();
                let told = if told.is_empty() { "nothing to change".to_owned() } else { told.join(", ") };
                self.tell(format!("Preset {}: {told}", preset.name));
            }
            Err(why) => self.error(why),
        }
    }

    pub(super) fn show_presets(&mut self) {
        self.overlay = Some(Overlay::Presets { list: self.presets(), at: 0 });
    }

    /// `/samplers`: the order of the chain.
    pub(super) fn set_order(&mut self, text: &str) {
        let order = if text == "default" { Ok(Stage::ALL.to_vec()) } else { Sampling::parse_order(text) };
        match order {
            Ok(order) => {
                self.set_sampling(|s| s.order = order);
                self.tell_order();
            }
            Err(why) => self.error(why),
        }
    }

    pub(super) fn tell_order(&mut self) {
        let names: Vec<&str> = self.chat.conversation.sampling.order.iter().map(|s| s.name()).collect();
        self.tell(format!("The chain: {}", names.join(" → ")));
    }

    /// `/bias TEXT VALUE`, `/bias off`.
    pub(super) fn set_bias(&mut self, text: &str) {
        if text == "off" {
            self.set_sampling(|s| s.bias.clear());
            self.tell("No token has a bias now");
            return;
        }
        let assignment = text.rsplit_once(char::is_whitespace).map(|(word, value)| format!("{word}={value}"));
        match Bias::parse(assignment.as_deref().unwrap_or(text)) {
            Ok(bias) => {
                self.tell(format!("'{}' gets {:+}", bias.text, bias.add));
                self.set_rules(|s| {
                    s.bias.retain(|b| b.text != bias.text);
                    s.bias.push(bias);
                });
            }
            Err(why) => self.error(why),
        }
    }

    /// Takes another bias or grammar; the engine says if it is none, and then the one before stays.
    fn set_rules(&mut self, change: impl FnOnce(&mut Sampling)) {
        let before = &self.chat.conversation.sampling;
        self.rules = Some((before.bias.clone(), before.grammar.clone()));
        self.set_sampling(change);
        let sampling = self.chat.conversation.sampling.clone();
        self.effects.push(Effect::Engine(Request::Check { sampling }));
    }

    pub(super) fn rules_refused(&mut self, problem: &Problem) {
        if let Some((bias, grammar)) = self.rules.take() {
            self.set_sampling(|s| (s.bias, s.grammar) = (bias, grammar));
        }
        self.error(format!("Not taken. {problem}"));
    }

    /// `/grammar FILE`, `/grammar off`.
    pub(super) fn set_grammar(&mut self, argument: &str) {
        if argument == "off" {
            self.set_sampling(|s| s.grammar.clear());
            self.tell("Answers follow no grammar now");
        } else {
            self.effects.push(Effect::ReadGrammar(argument.into()));
        }
    }

    /// A grammar's file was read.
    pub(super) fn grammar_read(&mut self, read: Result<String, String>) {
        match read {
            Ok(text) if text.trim().is_empty() => self.error("The file is empty; no grammar was taken"),
            Ok(text) => {
                self.set_rules(|s| s.grammar = text);
                self.tell("Answers follow the grammar from the next one on; /grammar off ends it");
            }
            Err(why) => self.error(why),
        }
    }
}
