//! Settings that belong together, under a name.

use super::knobs::Knob;
use super::sampling::{Bias, Sampling};

/// What is no choice of the next token, and stays as it is.
const APART: [Knob; 3] = [Knob::Seed, Knob::MaxTokens, Knob::LoopGuard];
/// What is no knob and can be in a preset.
const ORDER: &str = "samplers";
const BIAS: &str = "logit_bias";

/// A named set of knob values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// Knob names and values as text.
    pub values: Vec<(String, String)>,
}

/// A knob that a preset would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its label.
    pub label: &'static str,
    /// As it is.
    pub old: String,
    /// As it would be.
    pub new: String,
}

impl Preset {
    /// The presets that the program brings.
    pub fn built_in() -> Vec<Self> {
        // A test reads it, so it cannot be broken here.
        Self::parse(include_str!("../../assets/presets.toml")).unwrap_or_default()
    }

    /// The presets of the program with the user's own in their place or behind them.
    pub fn with_own(own: &[Self]) -> Vec<Self> {
        let is_own = |p: &Self| own.iter().any(|o| o.name.eq_ignore_ascii_case(&p.name));
        Self::built_in().into_iter().filter(|p| !is_own(p)).chain(own.iter().cloned()).collect()
    }

    /// The presets of a TOML file: a table each, of knobs and `about`.
    ///
    /// # Errors
    /// Names what is wrong and in which preset.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let tables: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            format!("line {}: {}", before.matches('\n').count() + 1, e.message())
        })?;
        let mut presets = Vec::new();
        for (name, table) in tables {
            let table = table.as_table().ok_or_else(|| format!("'{name}' is no table of settings"))?;
            let mut preset = Self { name, about: String::new(), values: Vec::new() };
            for (key, value) in table {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                if key == "about" {
                    preset.about = text;
                } else {
                    preset.values.push((key.clone(), text));
                }
            }
            preset.applied(&Sampling::default())?;
            presets.push(preset);
        }
        Ok(presets)
    }

    /// These settings as a preset.
    pub fn of(name: &str, sampling: &Sampling) -> Self {
        let plain = Sampling::default();
        let knobs = super::KNOBS.iter().filter(|s| !APART.contains(&s.knob));
        let differs = knobs.filter(|s| s.knob == Knob::Mode || sampling.get(s.knob) != plain.get(s.knob));
        let mut values: Vec<(String, String)> = differs.map(|s| (s.name.to_owned(), s.format(sampling))).collect();
        if sampling.order != plain.order {
            values.push((ORDER.to_owned(), sampling.order_text()));
        }
        if !sampling.bias.is_empty() {
            values.push((BIAS.to_owned(), sampling.bias_text()));
        }
        Self { name: name.to_owned(), about: "Saved by you.".to_owned(), values }
    }

    /// It as a table of a TOML file.
    pub fn to_toml(&self) -> String {
        let mut table = toml::Table::new();
        table.insert("about".to_owned(), self.about.clone().into());
        for (key, value) in &self.values {
            let number = value.parse::<i64>().map(toml::Value::from).or_else(|_| value.parse::<f64>().map(Into::into));
            let choice = Knob::named(key).is_none_or(|k| matches!(k.spec().kind, super::Kind::Choice(_)));
            table.insert(key.clone(), number.ok().filter(|_| !choice).unwrap_or_else(|| value.clone().into()));
        }
        let mut file = toml::Table::new();
        file.insert(self.name.clone(), table.into());
        file.to_string()
    }

    /// The preset's settings: what it does not name has its default, so that nothing is left of the preset before.
    /// Seed, longest answer, loop guard and grammar are no part of a preset and stay; so does a bias that it does not name.
    ///
    /// # Errors
    /// Names a knob that there is not, or a value out of range.
    pub fn applied(&self, sampling: &Sampling) -> Result<Sampling, String> {
        let mut made =
            Sampling { bias: sampling.bias.clone(), grammar: sampling.grammar.clone(), ..Sampling::default() };
        for knob in APART {
            made.put(knob, sampling.get(knob));
        }
        for (key, value) in &self.values {
            let wrong = |why: String| format!("the preset '{}': {why}", self.name);
            match (key.as_str(), Knob::named(key)) {
                (ORDER, _) => made.order = Sampling::parse_order(value).map_err(wrong)?,
                (BIAS, _) => made.bias = Bias::parse_list(value).map_err(wrong)?,
                (_, Some(knob)) => knob.spec().parse(&mut made, value).map_err(|e| wrong(e.to_string()))?,
                (_, None) => return Err(format!("the preset '{}' has an unknown '{key}'", self.name)),
            }
        }
        Ok(made)
    }

    /// What it would change.
    pub fn changes(&self, sampling: &Sampling) -> Vec<Change> {
        let Ok(applied) = self.applied(sampling) else { return Vec::new() };
        let differs = super::KNOBS.iter().filter(|s| s.format(sampling) != s.format(&applied));
        let knobs = differs.map(|s| Change { label: s.label, old: s.format(sampling), new: s.format(&applied) });
        let order = Change { label: "chain", old: sampling.order_text(), new: applied.order_text() };
        let bias = Change { label: "bias", old: sampling.bias_text(), new: applied.bias_text() };
        knobs.chain([order, bias].into_iter().filter(|c| c.old != c.new)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Mode, Seed, Stage};

    #[test]
    fn the_built_in_ones_are_sound_and_tell_what_they_change() {
        let presets = Preset::built_in();
        let names: Vec<&str> = presets.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["chat", "code", "creative", "facts", "summarise", "translate"]);
        assert!(presets.iter().all(|p| p.about.ends_with('.')));
        let chat = &presets[0];
        let changes = chat.changes(&Sampling::default());
        assert!(changes.contains(&Change { label: "temp", old: "0.80".into(), new: "0.70".into() }), "{changes:?}");
        assert_eq!(chat.changes(&chat.applied(&Sampling::default()).unwrap()), []);
    }

    #[test]
    fn ones_own_comes_back_from_its_file() {
        let s = Sampling {
            mode: Mode::Beam,
            beams: 7,
            length_penalty: 0.5,
            order: vec![Stage::TopK, Stage::Dry],
            bias: vec![Bias { text: "cat".into(), add: -2.5 }, Bias { text: "#7".into(), add: 100.0 }],
            ..Sampling::default()
        };
        let file = Preset::of("my own", &s).to_toml() + &Preset::of("Code", &Sampling::default()).to_toml();
        let read = Preset::parse(&file).unwrap();
        assert_eq!(read.len(), 2);
        let named = |name: &str| read.iter().find(|p| p.name == name).unwrap();
        assert_eq!(named("my own").applied(&Sampling::default()).unwrap(), s);
        // What was there before is gone, but for what a preset does not hold.
        let before = Sampling { temperature: 0.2, seed: Seed(Some(3)), max_tokens: 7, ..Sampling::default() };
        let seeded = Sampling { seed: Seed(Some(3)), max_tokens: 7, ..Sampling::default() };
        assert_eq!(named("Code").applied(&before).unwrap(), seeded);
        let all = Preset::with_own(&read);
        assert_eq!(all.iter().filter(|p| p.name.eq_ignore_ascii_case("code")).count(), 1);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(Preset::parse("[x]\nwarmth = 1\n").unwrap_err().contains("'warmth'"));
        assert!(Preset::parse("[x]\ntop_p = 7\n").unwrap_err().contains("top_p is 7"));
        assert!(Preset::parse("[x]\n\nnonsense[[").unwrap_err().contains("line 3"));
        assert!(Preset::parse("x = 1").unwrap_err().contains("no table"));
    }
}
