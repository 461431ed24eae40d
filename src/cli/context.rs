//! What every subcommand stands on: folders, settings, the model, the engine's command.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::chat::Preset;
use crate::config::{self, Settings};
use crate::engine::protocol::{ContextParams, Problem};
use crate::model;
use crate::paths::Paths;

/// Folders and settings.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where files live.
    pub paths: Paths,
    /// The settings of all layers.
    pub settings: Settings,
    /// What was wrong with them.
    pub notices: Vec<String>,
}

/// Milliseconds since 1970.
pub fn now() -> i64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    i64::try_from(wall).unwrap_or(i64::MAX)
}

/// Finds models on any thread.
#[derive(Clone, Debug)]
pub struct Finder {
    /// Folders to look in.
    pub places: Vec<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
}

impl Context {
    /// Reads the config file and the environment.
    ///
    /// # Errors
    /// If no folder is known.
    pub fn new() -> Result<Self, String> {
        let paths = Paths::new()?;
        let (settings, notices) = {
            let env = std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
            config::load(&paths.config, &env.collect::<Vec<_>>())
        };
        Ok(Self { paths, settings, notices })
    }

    /// How the engine makes its context for a conversation, which is come back to.
    pub fn chat_params(&self) -> ContextParams {
        let bytes = |mebibytes: u32| u64::from(mebibytes) << 20;
        ContextParams {
            cache_ram: self.settings.cache_ram.map(bytes),
            cache_disk: bytes(self.settings.cache_disk),
            cache_dir: Some(self.paths.states()),
            ..self.params()
        }
    }

    /// How the engine makes its context for something that happens once.
    pub fn params(&self) -> ContextParams {
        ContextParams {
            cache_ram: Some(0),
            cache_disk: 0,
            cache_dir: None,
            n_ctx: self.settings.ctx_size,
            n_batch: self.settings.batch_size,
            n_ubatch: self.settings.ubatch_size,
            threads: self.settings.threads,
            gpu_layers: self.settings.gpu_layers,
            swa_full: self.settings.swa_full,
            beyond_trained: self.settings.beyond_trained,
            rope: self.settings.rope,
            kv: self.settings.kv,
            flash_attn: self.settings.flash_attn,
        }
    }

    /// The program and arguments of the engine.
    pub fn engine_command(&self) -> Vec<String> {
        if !self.settings.engine_command.is_empty() {
            return self.settings.engine_command.clone();
        }
        let this = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("llmchat"));
        vec![this.to_string_lossy().into_owned(), "engine".to_owned()]
    }

    /// Finds models.
    pub fn finder(&self) -> Finder {
        let home = self.paths.home.clone();
        Finder { places: model::places(&self.paths.models(), home.as_deref()), home }
    }

    /// The model to start with: the one that was asked for, the one used last, or the default one.
    ///
    /// # Errors
    /// If there is none.
    pub fn model(&self) -> Result<PathBuf, Problem> {
        let name = self.settings.model.as_str();
        if !name.is_empty() {
            return self.finder().find(name);
        }
        let last = std::fs::read_to_string(self.paths.last_model()).ok().map(|p| PathBuf::from(p.trim_end()));
        let default = model::default_model(&self.paths.models());
        last.into_iter().chain(default).find(|p| p.is_file()).ok_or_else(|| {
            Problem::new(
                format!("There is no model in {}", self.paths.models().display()),
                "Fetch the default one with 'make model', or name a GGUF file with -m",
            )
        })
    }

    /// The user's own presets, and what is wrong with their file.
    pub fn presets(&self) -> (Vec<Preset>, Option<String>) {
        let path = self.paths.presets();
        let read = match std::fs::read_to_string(&path) {
            Ok(text) => Preset::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (Vec::new(), None),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(presets) => (presets, None),
            Err(why) => (Vec::new(), Some(format!("{}: {why}; your presets are not used", path.display()))),
        }
    }

    /// Writes the user's own presets; tells where.
    ///
    /// # Errors
    /// If they cannot be written, or the file has what would be lost.
    pub fn save_presets(&self, presets: &[Preset]) -> Result<String, String> {
        let path = self.paths.presets();
        if let (_, Some(fault)) = self.presets() {
            return Err(format!("Not saved, so that nothing is lost: {fault}"));
        }
        let text: String = presets.iter().map(|p| p.to_toml() + "\n").collect();
        let folder = path.parent().unwrap_or(Path::new("."));
        let write = || {
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            std::io::Write::write_all(&mut file, text.as_bytes())?;
            file.persist(&path).map_err(|e| e.error)
        };
        write().map(|_| path.display().to_string()).map_err(|e| format!("{} cannot be written: {e}", path.display()))
    }

    /// The next start takes this model.
    pub fn remember_model(&self, path: &Path) {
        // Not through links: the name that the user gave is the model's name.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let write = || {
            std::fs::create_dir_all(&self.paths.state)?;
            std::fs::write(self.paths.last_model(), path.to_string_lossy().as_bytes())
        };
        if let Err(error) = write() {
            tracing::warn!("the model is not remembered: {error}");
        }
    }
}

impl Finder {
    /// The model of that name or path.
    ///
    /// # Errors
    /// If there is none, or several.
    pub fn find(&self, name: &str) -> Result<PathBuf, Problem> {
        model::find(name, &self.places, self.home.as_deref()).map_err(|e| Problem::new(e.what(), e.next()))
    }

    /// Name and file of every model that can be used.
    pub fn list(&self) -> Vec<(String, PathBuf)> {
        let usable = model::list(&self.places).into_iter().filter(|f| f.header.is_ok());
        usable.map(|f| (f.name, f.path)).collect()
    }
}
