//! Settings that belong together, under a name.

use super::knobs::Knob;
use super::sampling::Sampling;

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

    /// The presets of a TOML file: a table each, of knobs and `about`.
    ///
    /// # Errors
    /// Names what is wrong and in which preset.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let tables: toml::Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
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
        let differs = super::KNOBS.iter().filter(|s| s.knob == Knob::Mode || sampling.get(s.knob) != plain.get(s.knob));
        let values = differs.map(|s| (s.name.to_owned(), s.format(sampling).replace("new each time", "-1"))).collect();
        Self { name: name.to_owned(), about: "Saved by you.".to_owned(), values }
    }

    /// It as a table of a TOML file.
    pub fn to_toml(&self) -> String {
        let mut table = toml::Table::new();
        table.insert("about".to_owned(), self.about.clone().into());
        for (key, value) in &self.values {
            let number = value.parse::<i64>().map(toml::Value::from).or_else(|_| value.parse::<f64>().map(Into::into));
            let choice = Knob::named(key).is_some_and(|k| matches!(k.spec().kind, super::Kind::Choice(_)));
            table.insert(key.clone(), number.ok().filter(|_| !choice).unwrap_or_else(|| value.clone().into()));
        }
        let mut file = toml::Table::new();
        file.insert(self.name.clone(), table.into());
        file.to_string()
    }

    /// The settings with the preset's values in them.
    ///
    /// # Errors
    /// Names a knob that there is not, or a value out of range.
    pub fn applied(&self, sampling: &Sampling) -> Result<Sampling, String> {
        let mut sampling = sampling.clone();
        for (key, value) in &self.values {
            let knob = Knob::named(key).ok_or_else(|| format!("the preset '{}' has an unknown '{key}'", self.name))?;
            knob.spec().parse(&mut sampling, value).map_err(|e| format!("the preset '{}': {e}", self.name))?;
        }
        Ok(sampling)
    }

    /// Which knobs it would change.
    pub fn changes(&self, sampling: &Sampling) -> Vec<Change> {
        let Ok(applied) = self.applied(sampling) else { return Vec::new() };
        let differs = super::KNOBS.iter().filter(|s| s.format(sampling) != s.format(&applied));
        differs.map(|s| Change { label: s.label, old: s.format(sampling), new: s.format(&applied) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Mode, Seed};

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
        let s =
            Sampling { mode: Mode::Beam, beams: 7, length_penalty: 0.5, seed: Seed(Some(3)), ..Sampling::default() };
        let file = Preset::of("my own", &s).to_toml() + &Preset::of("other", &Sampling::default()).to_toml();
        let read = Preset::parse(&file).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].applied(&Sampling::default()).unwrap(), s);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(Preset::parse("[x]\nwarmth = 1\n").unwrap_err().contains("'warmth'"));
        assert!(Preset::parse("[x]\ntop_p = 7\n").unwrap_err().contains("top_p is 7"));
        assert!(Preset::parse("x = 1").unwrap_err().contains("no table"));
    }
}
