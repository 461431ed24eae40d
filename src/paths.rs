//! Where files live: the platform's folders, or those that the environment names.

use std::path::PathBuf;

/// The folders of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Conversations and models.
    pub data: PathBuf,
    /// The log, and what is remembered between runs.
    pub state: PathBuf,
    /// The settings file.
    pub config: PathBuf,
    /// The user's home, where it is known.
    pub home: Option<PathBuf>,
}

impl Paths {
    /// The folders: `LLMCHAT_DATA_DIR`, `LLMCHAT_STATE_DIR` and `LLMCHAT_CONFIG` (a file) before the platform's.
    ///
    /// # Errors
    /// If there is neither a home folder nor the variables.
    pub fn new() -> Result<Self, String> {
        let project = directories::ProjectDirs::from("", "", "llmchat");
        let env = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let none = || {
            "There is no home folder. Set HOME, or LLMCHAT_DATA_DIR, LLMCHAT_STATE_DIR and LLMCHAT_CONFIG".to_owned()
        };
        let own = project.as_ref();
        Ok(Self {
            data: env("LLMCHAT_DATA_DIR").or_else(|| own.map(|p| p.data_dir().to_owned())).ok_or_else(none)?,
            state: env("LLMCHAT_STATE_DIR")
                .or_else(|| own.map(|p| p.state_dir().unwrap_or(p.data_local_dir()).to_owned()))
                .ok_or_else(none)?,
            config: env("LLMCHAT_CONFIG")
                .or_else(|| own.map(|p| p.config_dir().join("config.toml")))
                .ok_or_else(none)?,
            home: directories::BaseDirs::new().map(|b| b.home_dir().to_owned()),
        })
    }

    /// The folder of conversations.
    pub fn conversations(&self) -> PathBuf {
        self.data.join("conversations")
    }

    /// The folder of models.
    pub fn models(&self) -> PathBuf {
        self.data.join("models")
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.state.join("llmchat.log")
    }

    /// The file that names the model that was used last.
    pub fn last_model(&self) -> PathBuf {
        self.state.join("last-model")
    }
}
