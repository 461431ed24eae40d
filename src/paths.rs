//! Where files live: the platform's folders, or those that the environment names.

use std::ffi::OsString;
use std::path::PathBuf;

/// The folders of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Conversations and models.
    pub data: PathBuf,
    /// The log, and what is remembered between runs.
    pub state: PathBuf,
    /// What can be made again: states of the KV cache.
    pub cache: PathBuf,
    /// The settings file.
    pub config: PathBuf,
    /// The user's home, where it is known.
    pub home: Option<PathBuf>,
}

impl Paths {
    /// The folders: `LLMCHAT_DATA_DIR`, `LLMCHAT_STATE_DIR`, `LLMCHAT_CACHE_DIR` and `LLMCHAT_CONFIG` (a file) before the platform's.
    ///
    /// # Errors
    /// If there is neither a home folder nor the variables.
    pub fn new() -> Result<Self, String> {
        Self::from(|name| std::env::var_os(name))
    }

    fn from(env: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let project = directories::ProjectDirs::from("", "", "llmchat");
        let env = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let none = || {
            "There is no home folder. Set HOME, or LLMCHAT_DATA_DIR, LLMCHAT_STATE_DIR, LLMCHAT_CACHE_DIR and LLMCHAT_CONFIG"
                .to_owned()
        };
        let own = project.as_ref();
        Ok(Self {
            data: env("LLMCHAT_DATA_DIR").or_else(|| own.map(|p| p.data_dir().to_owned())).ok_or_else(none)?,
            state: env("LLMCHAT_STATE_DIR")
                .or_else(|| own.map(|p| p.state_dir().unwrap_or(p.data_local_dir()).to_owned()))
                .ok_or_else(none)?,
            cache: env("LLMCHAT_CACHE_DIR").or_else(|| own.map(|p| p.cache_dir().to_owned())).ok_or_else(none)?,
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

    /// The user's presets, beside the settings.
    pub fn presets(&self) -> PathBuf {
        self.config.with_file_name("presets.toml")
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.state.join("llmchat.log")
    }

    /// The folder of states of the KV cache.
    pub fn states(&self) -> PathBuf {
        self.cache.join("states")
    }

    /// The file that names the model that was used last.
    pub fn last_model(&self) -> PathBuf {
        self.state.join("last-model")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_before_the_platform_and_an_empty_variable_is_none() {
        let platform = Paths::from(|_| None).unwrap();
        assert!(platform.data.ends_with("llmchat") || platform.data.parent().is_some_and(|p| p.ends_with("llmchat")));
        assert_eq!(Paths::from(|_| Some(OsString::new())).unwrap(), platform);
        let own = Paths::from(|name| Some(format!("/own/{name}").into())).unwrap();
        assert_eq!(own.conversations(), PathBuf::from("/own/LLMCHAT_DATA_DIR/conversations"));
        assert_eq!(own.models(), PathBuf::from("/own/LLMCHAT_DATA_DIR/models"));
        assert_eq!(own.log(), PathBuf::from("/own/LLMCHAT_STATE_DIR/llmchat.log"));
        assert_eq!(own.states(), PathBuf::from("/own/LLMCHAT_CACHE_DIR/states"));
        assert_eq!(own.config, PathBuf::from("/own/LLMCHAT_CONFIG"));
    }
}
