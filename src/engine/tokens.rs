//! Text to tokens and back, with one beginning-of-sequence token and no control token out of anybody's text.

use std::num::NonZeroU16;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::vocab::LlamaVocab;

use super::guard::Guard;
use super::prompt::Rendered;
use super::protocol::{Cells, Problem};
use super::sampler::{Grammar, Words};
use super::sequences::Token;
use crate::chat::Role;

/// A model's vocabulary.
#[derive(Debug)]
pub struct Vocabulary<'m> {
    model: &'m LlamaModel,
    vocab: LlamaVocab<'m>,
    guard: Guard,
}

/// A prompt in tokens.
#[derive(Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// Whose they are.
    pub cells: Cells,
    /// How many there are of each part of the text, in its order, as [`Rendered::owners`] divides it.
    pub parts: Vec<(Role, u32)>,
}

impl<'m> Vocabulary<'m> {
    /// The vocabulary of a model.
    pub fn new(model: &'m LlamaModel) -> Self {
        let vocab = model.vocab();
        let controls = vocab
            .tokens()
            .filter(|t| vocab.is_control(*t) || vocab.is_eog(*t))
            .filter_map(|t| vocab.text(t).and_then(|text| text.to_str().ok()).map(str::to_owned))
            .collect::<Vec<_>>();
        Self { model, vocab, guard: Guard::new(controls) }
    }

    /// Keeps the texts that the tokeniser would turn into control or end tokens out of messages.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The text of the beginning- and end-of-sequence tokens, as templates use them; empty if there are none.
    pub fn bos_eos(&self) -> (String, String) {
        let text = |token: LlamaToken| {
            let text = (token.0 >= 0).then(|| self.vocab.text(token)).flatten();
            text.map(|t| t.to_string_lossy().into_owned()).unwrap_or_default()
        };
        (text(self.vocab.bos()), text(self.vocab.eos()))
    }

    /// How many tokens there are.
    pub fn size(&self) -> u32 {
        u32::try_from(self.vocab.n_tokens()).unwrap_or(0)
    }

    /// A token for a decode call whose result nobody reads.
    pub fn any(&self) -> Token {
        let bos = self.vocab.bos().0;
        if self.has(bos) { bos } else { 0 }
    }

    /// Whether the id is of this vocabulary.
    pub fn has(&self, token: Token) -> bool {
        (0..self.vocab.n_tokens()).contains(&token)
    }

    /// Whether an answer ends with this token.
    pub fn is_end(&self, token: Token) -> bool {
        self.vocab.is_eog(LlamaToken(token))
    }

    /// The bytes that a token adds to an answer; none for control tokens.
    pub fn bytes(&self, token: Token) -> Vec<u8> {
        let token = LlamaToken(token);
        if self.vocab.is_control(token) { Vec::new() } else { self.piece(token, false) }
    }

    /// The bytes of an ordinary token, `None` for a control token.
    pub fn plain(&self, token: Token) -> Option<Vec<u8>> {
        (!self.vocab.is_control(LlamaToken(token))).then(|| self.piece(LlamaToken(token), false))
    }

    fn piece(&self, token: LlamaToken, special: bool) -> Vec<u8> {
        self.vocab.token_to_piece(token, special, None::<NonZeroU16>)
    }

    /// The bytes of a token, control tokens by their names.
    pub fn text_or_name(&self, token: Token) -> Vec<u8> {
        self.piece(LlamaToken(token), true)
    }

    /// The tokens of a text that somebody wrote, which never become control tokens.
    pub fn tokens(&self, text: &str) -> Vec<Token> {
        self.vocab.tokenize(text.as_bytes(), false, false).into_iter().map(|t| t.0).collect()
    }

    /// A text as it is split into tokens. Bytes that are no whole character are shown as <E6>.
    pub fn split(&self, text: &str) -> Vec<String> {
        self.tokens(text).into_iter().map(|t| shown(&self.text_or_name(t))).collect()
    }

    /// Tokenises a prompt. Each segment is tokenised on its own, so that no control text that somebody wrote
    /// is ever whole in one of them.
    pub fn encode(&self, rendered: &Rendered) -> Encoded {
        let mut tokens: Vec<LlamaToken> = Vec::new();
        for segment in &rendered.segments {
            tokens.extend(self.vocab.tokenize(segment.as_bytes(), false, true));
        }
        if self.vocab.should_add_bos() {
            let bos = self.vocab.bos();
            let there = tokens.iter().take_while(|t| **t == bos).count();
            tokens.splice(..there, [bos]);
        }
        let parts = self.parts(&tokens, rendered);
        let mut cells = Cells::default();
        for (role, n) in &parts {
            *cells.of(*role) += n;
        }
        Encoded { tokens: tokens.into_iter().map(|t| t.0).collect(), cells, parts }
    }

    fn parts(&self, tokens: &[LlamaToken], rendered: &Rendered) -> Vec<(Role, u32)> {
        let mut parts: Vec<(Role, u32)> = rendered.owners.iter().map(|(_, role)| (*role, 0)).collect();
        // What is behind the last end is the model's, as is all where nothing is divided.
        if parts.is_empty() {
            parts.push((Role::Assistant, 0));
        }
        let last = parts.len() - 1;
        let mut part = 0;
        let mut at = 0;
        let beginning = rendered.segments.first().map(String::as_str).unwrap_or_default();
        for (i, token) in tokens.iter().enumerate() {
            let piece = self.piece(*token, true);
            while part < last && rendered.owners.get(part).is_some_and(|(end, _)| at >= *end) {
                part += 1;
            }
            parts[part].1 += 1;
            // A token that was put before the text is no part of it.
            if i > 0 || beginning.as_bytes().starts_with(&piece) {
                at += piece.len();
            }
        }
        parts
    }
}

impl Words for Vocabulary<'_> {
    fn size(&self) -> u32 {
        Vocabulary::size(self)
    }

    fn text(&self, token: Token) -> Vec<u8> {
        self.bytes(token)
    }

    fn named(&self, text: &str) -> Vec<Token> {
        let is = |token: &Token| {
            let bytes = self.bytes(*token);
            bytes == text.as_bytes() || bytes.strip_prefix(b" ") == Some(text.as_bytes())
        };
        (0..self.vocab.n_tokens()).filter(is).collect()
    }

    fn grammar(&self, gbnf: &str) -> Result<Grammar, Problem> {
        Grammar::new(self.model, gbnf)
    }
}

fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("<{byte:02X}>")));
    }
    text
}

#[cfg(test)]
mod tests;
