//! What a chat is: messages, sampling settings, figures. Plain data; nothing here does anything.

mod content;
mod conversation;
mod cut;
mod filing;
mod history;
mod journal;
mod knobs;
mod kv;
mod metrics;
mod origin;
mod presets;
mod rope;
mod sampling;
mod tree;

pub use content::{Content, unmarked};
pub use conversation::{Conversation, ConversationId, Message, MessageId, MessageState, Role};
pub use cut::{Cut, Overflow, Sent};
pub use filing::{Filing, Hit};
pub use history::{Edit, History};
pub use journal::{Access, Entry, JOURNAL_VERSION, StoreEvent, StoreRequest, Summary};
pub use knobs::{KNOBS, Kind, Knob, KnobError, Spec, first_knobs};
pub use kv::{FlashAttention, KvType, KvTypes};
pub use metrics::{Finish, Made, Timings, TokenRecord, Usage};
pub use origin::{Origin, hex};
pub use presets::{Change, Preset};
pub use rope::{Rope, RopeScaling};
pub use sampling::{Bias, EarlyStopping, LoopGuard, Mirostat, Mode, Sampling, Seed, Stage};
pub use tree::Node;
