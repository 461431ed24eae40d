//! A GBNF grammar, by llama.cpp's own engine. It ends its process on a token that does not fit, so none is given to
//! it that it was not asked about before.

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;

use crate::engine::protocol::Problem;
use crate::engine::sequences::Token;

/// Where an answer stands in its grammar.
pub struct Grammar {
    // Interior, because asking takes a mutable reference and changes nothing.
    state: std::cell::RefCell<LlamaSampler>,
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grammar")
    }
}

impl Grammar {
    /// The beginning of a grammar in GBNF, or of one made of a JSON schema. It must not be used after the model is gone.
    ///
    /// # Errors
    /// If it is no grammar.
    pub fn new(model: &LlamaModel, text: &str) -> Result<Self, Problem> {
        crate::engine::log::forget();
        let made;
        let gbnf = if text.trim_start().starts_with('{') {
            let schema: Result<serde_json::Value, _> = serde_json::from_str(text);
            schema.map_err(|error| Problem::new(format!("The JSON schema is no JSON: {error}"), "Mend it"))?;
            made = llama_cpp_2::json_schema_to_grammar(text).map_err(|_| {
                Problem::new(
                    "The JSON schema cannot be made a grammar",
                    "Mend it: its types must be those of JSON Schema, and every $ref must lead somewhere",
                )
            })?;
            &made
        } else {
            text
        };
        match LlamaSampler::grammar(model, gbnf, "root") {
            Ok(state) => Ok(Self { state: state.into() }),
            Err(error) => {
                let why = crate::engine::log::last_error().map_or_else(String::new, |why| format!(": {why}"));
                tracing::info!("a grammar was refused: {error}");
                Err(Problem::new(
                    format!("The grammar cannot be read{why}"),
                    "Mend it: it needs a rule named root and every rule that it names, and no rule may begin with itself",
                ))
            }
        }
    }

    /// Whether this token may come next.
    pub fn allows(&self, token: Token) -> bool {
        let mut one = [0.0];
        self.apply(&[token], &mut one);
        one[0] > f32::NEG_INFINITY
    }

    /// Why this token may not come next, if so.
    pub fn forbids(&self, token: Token) -> Option<Problem> {
        (!self.allows(token)).then(|| {
            Problem::new("The grammar does not allow that token", "Choose another one, or take the grammar back")
        })
    }

    /// Sets the logits of what may not come next to −∞.
    pub fn forbid(&self, logits: &mut [f32]) {
        let tokens: Vec<Token> = (0..).zip(logits.iter()).map(|(id, _)| id).collect();
        self.apply(&tokens, logits);
    }

    fn apply(&self, tokens: &[Token], logits: &mut [f32]) {
        let data = tokens.iter().zip(logits.iter()).map(|(t, l)| LlamaTokenData::new(LlamaToken(*t), *l, 0.0));
        let mut array = LlamaTokenDataArray::new(data.collect(), false);
        array.apply_sampler(&mut self.state.borrow_mut());
        for (logit, data) in logits.iter_mut().zip(&array.data) {
            *logit = data.logit();
        }
    }

    /// A token came.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn accept(&mut self, token: Token) -> Result<(), Problem> {
        if let Some(problem) = self.forbids(token) {
            return Err(problem);
        }
        self.state.get_mut().accept(LlamaToken(token));
        Ok(())
    }
}
