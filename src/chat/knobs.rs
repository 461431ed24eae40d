//! THE table of sliders: what the panel, the config, `--set`, the flags, the saved files and the help show.

use super::sampling::{EarlyStopping, LoopGuard, Mirostat, Mode, Sampling};

/// One slider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The table says what each is.
pub enum Knob {
    Mode,
    Temperature,
    TopK,
    TopP,
    Beams,
    LengthPenalty,
    EarlyStopping,
    NBest,
    MinP,
    TypicalP,
    TopNSigma,
    XtcProbability,
    XtcThreshold,
    DynatempRange,
    DynatempExponent,
    RepeatPenalty,
    FrequencyPenalty,
    PresencePenalty,
    RepeatLastN,
    DryMultiplier,
    DryBase,
    DryAllowedLength,
    DryPenaltyLastN,
    Mirostat,
    MirostatTau,
    MirostatEta,
    LoopGuard,
    Seed,
    MaxTokens,
}

/// What a knob's values look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of a few names; the value is the index.
    Choice(&'static [&'static str]),
    /// A number with so many decimals.
    Real(usize),
    /// A whole number.
    Whole,
    /// A whole number, or −1 for a new one each time.
    Seed,
}

/// A row of the table.
#[derive(Debug)]
pub struct Spec {
    /// Which knob.
    pub knob: Knob,
    /// Its name in the config, in `--set` and in saved files.
    pub name: &'static str,
    /// Its flag, without dashes.
    pub flag: &'static str,
    /// Names that other programs use for it, accepted and not listed.
    pub aliases: &'static [&'static str],
    /// What stands beside the slider.
    pub label: &'static str,
    /// What its values look like.
    pub kind: Kind,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// One press of left or right.
    pub step: f64,
    /// One press with Shift.
    pub big_step: f64,
    /// The value of a new conversation where the config says nothing.
    pub default: f64,
    /// The modes that it means something to.
    pub modes: &'static [Mode],
    /// One sentence.
    pub help: &'static str,
}

const ALL: &[Mode] = Mode::ALL;
/// Where a token is drawn, or could be.
const DRAWN: &[Mode] = &[Mode::Sample, Mode::Hand];
const BEAM: &[Mode] = &[Mode::Beam];

/// The knobs that matter first in a mode; one key opens the rest.
pub fn first_knobs(mode: Mode) -> &'static [Knob] {
    match mode {
        Mode::Greedy => &[Knob::Mode, Knob::RepeatPenalty, Knob::LoopGuard, Knob::MaxTokens],
        Mode::Sample | Mode::Hand => &[Knob::Mode, Knob::Temperature, Knob::TopK, Knob::TopP],
        Mode::Beam => &[Knob::Mode, Knob::Beams, Knob::LengthPenalty, Knob::EarlyStopping],
    }
}

/// Every knob, in the order of the panel.
#[rustfmt::skip]
pub static KNOBS: [Spec; 29] = [
    Spec { knob: Knob::Mode, name: "mode", flag: "mode", aliases: &[], label: "mode", modes: ALL,
        kind: Kind::Choice(Mode::NAMES), min: 0.0, max: 3.0, step: 1.0, big_step: 1.0, default: 1.0,
        help: "greedy takes the most probable token, sample draws from what the cuts leave, beam searches for the most probable answer, hand lets you choose." },
    Spec { knob: Knob::Temperature, name: "temperature", flag: "temp", aliases: &["temp"], label: "temp", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 2.0, step: 0.05, big_step: 0.25, default: 0.8,
        help: "Flattens (above 1) or sharpens (below 1) the distribution; 0 is greedy." },
    Spec { knob: Knob::TopK, name: "top_k", flag: "top-k", aliases: &["topk"], label: "top-k", modes: DRAWN,
        kind: Kind::Whole, min: 0.0, max: 1000.0, step: 1.0, big_step: 10.0, default: 40.0,
        help: "Keeps the k most probable tokens; 0 keeps all." },
    Spec { knob: Knob::TopP, name: "top_p", flag: "top-p", aliases: &["topp"], label: "top-p", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 1.0, step: 0.01, big_step: 0.1, default: 0.95,
        help: "Keeps the most probable tokens until their probabilities add up to p; 1 keeps all." },
    Spec { knob: Knob::Beams, name: "beams", flag: "beams", aliases: &["num_beams"], label: "beams", modes: BEAM,
        kind: Kind::Whole, min: 1.0, max: 16.0, step: 1.0, big_step: 4.0, default: 4.0,
        help: "How many answers a beam search follows at once; 1 is greedy." },
    Spec { knob: Knob::LengthPenalty, name: "length_penalty", flag: "length-penalty", aliases: &[], label: "length", modes: BEAM,
        kind: Kind::Real(2), min: -2.0, max: 2.0, step: 0.05, big_step: 0.25, default: 1.0,
        help: "Divides a beam's sum of log-probabilities by its length to this power: above 0 favours long answers." },
    Spec { knob: Knob::EarlyStopping, name: "early_stopping", flag: "early-stopping", aliases: &[], label: "stopping", modes: BEAM,
        kind: Kind::Choice(EarlyStopping::NAMES), min: 0.0, max: 2.0, step: 1.0, big_step: 1.0, default: 1.0,
        help: "first: when enough answers ended; best: when the living beams score less; never: when they can never score more." },
    Spec { knob: Knob::NBest, name: "n_best", flag: "n-best", aliases: &["num_return_sequences"], label: "n-best", modes: BEAM,
        kind: Kind::Whole, min: 1.0, max: 16.0, step: 1.0, big_step: 4.0, default: 4.0,
        help: "How many answers of a beam search are kept to choose from." },
    Spec { knob: Knob::MinP, name: "min_p", flag: "min-p", aliases: &["minp"], label: "min-p", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 1.0, step: 0.01, big_step: 0.1, default: 0.05,
        help: "Drops tokens less probable than this share of the most probable one; 0 keeps all." },
    Spec { knob: Knob::TypicalP, name: "typical_p", flag: "typical", aliases: &["typ_p"], label: "typical", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 1.0, step: 0.01, big_step: 0.1, default: 1.0,
        help: "Keeps tokens whose surprise is closest to the expected one until they add up to p; 1 keeps all." },
    Spec { knob: Knob::TopNSigma, name: "top_n_sigma", flag: "top-nsigma", aliases: &["top_nsigma"], label: "n-sigma", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 10.0, step: 0.05, big_step: 0.5, default: 0.0,
        help: "Keeps logits within n standard deviations of the largest; 0 keeps all." },
    Spec { knob: Knob::XtcProbability, name: "xtc_probability", flag: "xtc-probability", aliases: &[], label: "xtc", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 1.0, step: 0.05, big_step: 0.25, default: 0.0,
        help: "How often the top choices above the threshold, all but the last, are left out; 0 is never." },
    Spec { knob: Knob::XtcThreshold, name: "xtc_threshold", flag: "xtc-threshold", aliases: &[], label: "xtc from", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 0.5, step: 0.01, big_step: 0.1, default: 0.1,
        help: "The probability from which a token is a top choice for xtc." },
    Spec { knob: Knob::DynatempRange, name: "dynatemp_range", flag: "dynatemp-range", aliases: &[], label: "dynatemp", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 2.0, step: 0.05, big_step: 0.25, default: 0.0,
        help: "The temperature follows the entropy by so much, either way; 0 keeps it fixed." },
    Spec { knob: Knob::DynatempExponent, name: "dynatemp_exponent", flag: "dynatemp-exp", aliases: &["dynatemp_exp"], label: "dyn. exp", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 10.0, step: 0.1, big_step: 1.0, default: 1.0,
        help: "How the temperature follows the entropy; 1 is in proportion." },
    Spec { knob: Knob::RepeatPenalty, name: "repeat_penalty", flag: "repeat-penalty", aliases: &["repeat"], label: "repeat", modes: ALL,
        kind: Kind::Real(2), min: 1.0, max: 2.0, step: 0.01, big_step: 0.1, default: 1.0,
        help: "Makes recent tokens less probable; 1 changes nothing." },
    Spec { knob: Knob::FrequencyPenalty, name: "frequency_penalty", flag: "frequency-penalty", aliases: &[], label: "frequency", modes: ALL,
        kind: Kind::Real(2), min: -2.0, max: 2.0, step: 0.05, big_step: 0.5, default: 0.0,
        help: "Taken from a recent token's logit for each time it occurs; 0 changes nothing." },
    Spec { knob: Knob::PresencePenalty, name: "presence_penalty", flag: "presence-penalty", aliases: &[], label: "presence", modes: ALL,
        kind: Kind::Real(2), min: -2.0, max: 2.0, step: 0.05, big_step: 0.5, default: 0.0,
        help: "Taken from a recent token's logit once; 0 changes nothing." },
    Spec { knob: Knob::RepeatLastN, name: "repeat_last_n", flag: "repeat-last-n", aliases: &[], label: "window", modes: ALL,
        kind: Kind::Whole, min: 0.0, max: 4096.0, step: 8.0, big_step: 64.0, default: 64.0,
        help: "How many recent tokens the three penalties look at; 0 is none." },
    Spec { knob: Knob::DryMultiplier, name: "dry_multiplier", flag: "dry-multiplier", aliases: &["dry"], label: "dry", modes: ALL,
        kind: Kind::Real(2), min: 0.0, max: 5.0, step: 0.05, big_step: 0.5, default: 0.0,
        help: "How much a token that goes on with a repetition loses; 0 is off." },
    Spec { knob: Knob::DryBase, name: "dry_base", flag: "dry-base", aliases: &[], label: "dry base", modes: ALL,
        kind: Kind::Real(2), min: 1.0, max: 4.0, step: 0.05, big_step: 0.5, default: 1.75,
        help: "How fast dry grows with the length of the repetition." },
    Spec { knob: Knob::DryAllowedLength, name: "dry_allowed_length", flag: "dry-allowed-length", aliases: &[], label: "dry from", modes: ALL,
        kind: Kind::Whole, min: 1.0, max: 100.0, step: 1.0, big_step: 5.0, default: 2.0,
        help: "The longest repetition that costs nothing." },
    Spec { knob: Knob::DryPenaltyLastN, name: "dry_penalty_last_n", flag: "dry-penalty-last-n", aliases: &[], label: "dry over", modes: ALL,
        kind: Kind::Whole, min: -1.0, max: 65_536.0, step: 64.0, big_step: 1024.0, default: -1.0,
        help: "How many recent tokens dry looks at; -1 for all." },
    Spec { knob: Knob::Mirostat, name: "mirostat", flag: "mirostat", aliases: &[], label: "mirostat", modes: DRAWN,
        kind: Kind::Choice(Mirostat::NAMES), min: 0.0, max: 1.0, step: 1.0, big_step: 1.0, default: 0.0,
        help: "2 holds the surprise of each token constant, in the place of the cuts." },
    Spec { knob: Knob::MirostatTau, name: "mirostat_tau", flag: "mirostat-ent", aliases: &["mirostat_ent"], label: "mir. tau", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 20.0, step: 0.1, big_step: 1.0, default: 5.0,
        help: "The surprise that mirostat aims at, in bits." },
    Spec { knob: Knob::MirostatEta, name: "mirostat_eta", flag: "mirostat-lr", aliases: &["mirostat_lr"], label: "mir. eta", modes: DRAWN,
        kind: Kind::Real(2), min: 0.0, max: 1.0, step: 0.01, big_step: 0.1, default: 0.1,
        help: "How fast mirostat corrects itself." },
    Spec { knob: Knob::LoopGuard, name: "loop_guard", flag: "loop-guard", aliases: &[], label: "loops", modes: ALL,
        kind: Kind::Choice(LoopGuard::NAMES), min: 0.0, max: 2.0, step: 1.0, big_step: 1.0, default: 1.0,
        help: "What happens to an answer that repeats itself: nothing, a mark, or a stop." },
    Spec { knob: Knob::Seed, name: "seed", flag: "seed", aliases: &[], label: "seed", modes: DRAWN,
        kind: Kind::Seed, min: -1.0, max: 4_294_967_294.0, step: 1.0, big_step: 100.0, default: -1.0,
        help: "The same seed and settings give the same answer; -1 takes a new one each time." },
    Spec { knob: Knob::MaxTokens, name: "max_tokens", flag: "predict", aliases: &["n_predict", "num_predict"], label: "longest", modes: ALL,
        kind: Kind::Whole, min: 1.0, max: 1_000_000.0, step: 16.0, big_step: 256.0, default: 2048.0,
        help: "The longest answer in tokens." },
];

/// Why a value was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobError(pub String);

impl std::fmt::Display for KnobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KnobError {}

impl Knob {
    /// The knob's row.
    pub fn spec(self) -> &'static Spec {
        // The table lists the knobs in the order of the enum; a test holds it.
        &KNOBS[self as usize]
    }

    /// The knob of that name, flag or alias; dashes and underscores are alike.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_lowercase().replace('-', "_");
        KNOBS
            .iter()
            .find(|s| s.name == name || s.flag.replace('-', "_") == name || s.aliases.contains(&name.as_str()))
            .map(|s| s.knob)
    }
}

impl Spec {
    /// Sets the knob if the value is finite and in range.
    ///
    /// # Errors
    /// Says what was given and what is allowed.
    pub fn set(&self, sampling: &mut Sampling, value: f64) -> Result<(), KnobError> {
        if !value.is_finite() || value < self.min || value > self.max {
            return Err(KnobError(format!("{} is {value}; it must be from {} to {}", self.name, self.min, self.max)));
        }
        sampling.put(self.knob, value);
        Ok(())
    }

    /// Sets the knob from text: a number, or a name of a choice.
    ///
    /// # Errors
    /// Says what was given and what is allowed.
    pub fn parse(&self, sampling: &mut Sampling, text: &str) -> Result<(), KnobError> {
        let text = text.trim();
        if let Kind::Choice(names) = self.kind {
            let at = names.iter().position(|n| n.eq_ignore_ascii_case(text));
            // llama.cpp's 0 is "off".
            let Some(at) = at.or_else(|| (text == "0" && names.first() == Some(&"off")).then_some(0)) else {
                return Err(KnobError(format!("{} is '{text}'; it must be {}", self.name, names.join(" or "))));
            };
            return self.set(sampling, at as f64);
        }
        let value: f64 = match (self.kind, text) {
            (Kind::Seed, "new" | "random") => -1.0,
            _ => text.parse().map_err(|_| {
                KnobError(format!("{} is '{text}'; it must be a number from {} to {}", self.name, self.min, self.max))
            })?,
        };
        if matches!(self.kind, Kind::Whole | Kind::Seed) && value.fract() != 0.0 {
            return Err(KnobError(format!("{} is {text}; it must be a whole number", self.name)));
        }
        self.set(sampling, value)
    }

    /// Moves the knob by so many steps, staying in range and on the step's grid.
    pub fn step(&self, sampling: &mut Sampling, steps: i32, big: bool) {
        let size = if big { self.big_step } else { self.step };
        let moved = sampling.get(self.knob) + f64::from(steps) * size;
        let scale = 10f64.powi(if let Kind::Real(d) = self.kind { i32::try_from(d).unwrap_or(2) } else { 0 });
        let value = ((moved * scale).round() / scale).clamp(self.min, self.max);
        sampling.put(self.knob, value);
    }

    /// The value as it is shown and saved in text.
    pub fn format(&self, sampling: &Sampling) -> String {
        let value = sampling.get(self.knob);
        match self.kind {
            Kind::Choice(names) => (*names.get(value as usize).unwrap_or(&"?")).to_owned(),
            Kind::Real(decimals) => format!("{value:.decimals$}"),
            Kind::Seed if value < 0.0 => "new each time".to_owned(),
            Kind::Whole | Kind::Seed => format!("{value:.0}"),
        }
    }

    /// Where the value stands between its ends, 0 to 1, for drawing.
    pub fn fraction(&self, sampling: &Sampling) -> f64 {
        ((sampling.get(self.knob) - self.min) / (self.max - self.min)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_enum_and_its_defaults_are_in_range() {
        for (i, spec) in KNOBS.iter().enumerate() {
            assert_eq!(spec.knob as usize, i, "{}", spec.name);
            assert!((spec.min..=spec.max).contains(&spec.default), "{}", spec.name);
        }
    }

    #[test]
    fn bad_values_are_refused_and_leave_the_old_one() {
        let mut s = Sampling::default();
        for (knob, text) in [
            (Knob::Temperature, "NaN"),
            (Knob::Temperature, "2.1"),
            (Knob::Temperature, "warm"),
            (Knob::TopK, "1.5"),
            (Knob::TopK, "-1"),
            (Knob::Mode, "beams"),
            (Knob::MaxTokens, "0"),
        ] {
            assert!(knob.spec().parse(&mut s, text).is_err(), "{text}");
        }
        assert_eq!(s, Sampling::default());
    }

    #[test]
    fn loaded_values_become_finite_and_in_range() {
        let s = Sampling { temperature: f32::NAN, top_p: 7.0, max_tokens: 0, ..Sampling::default() }.sanitised();
        assert_eq!(s.temperature, 0.8);
        assert_eq!(s.top_p, 1.0);
        assert_eq!(s.max_tokens, 1);
    }

    #[test]
    fn steps_stay_on_the_grid_and_in_range() {
        let mut s = Sampling::default();
        let temp = Knob::Temperature.spec();
        for _ in 0..3 {
            temp.step(&mut s, 1, false);
        }
        assert_eq!(temp.format(&s), "0.95");
        temp.step(&mut s, 100, true);
        assert_eq!(temp.format(&s), "2.00");
        let seed = Knob::Seed.spec();
        seed.step(&mut s, -1, false);
        assert_eq!(seed.format(&s), "new each time");
        seed.step(&mut s, 1, false);
        assert_eq!(seed.format(&s), "0");
    }

    #[test]
    fn names_of_other_programs_are_understood() {
        for (name, knob) in [
            ("top-k", Knob::TopK),
            ("top_k", Knob::TopK),
            ("temp", Knob::Temperature),
            ("num_predict", Knob::MaxTokens),
        ] {
            assert_eq!(Knob::named(name), Some(knob));
        }
        assert_eq!(Knob::named("warmth"), None);
    }
}
