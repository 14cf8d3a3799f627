//! Commands that messages recommend, complete enough to be typed as they are.

use std::path::{Path, PathBuf};

use forebay_daemon::config::{DEFAULT_CONFIG_FILE, pool_from_environment};
use forebay_daemon::embedded::EmbeddedPoolOptions;

use crate::pool::PoolSelection;

impl PoolSelection {
    /// ` --pool PATH` for a command on this pool; empty for the one that commands use without it.
    pub fn option(&self) -> String {
        let path = match self {
            PoolSelection::Embedded(options) => &options.directory,
            PoolSelection::Shared(file) => file,
        };
        option_of(path, &default_path())
    }
}

/// The pool that commands without `--pool` use.
fn default_path() -> PathBuf {
    let installed = || Some(PathBuf::from(DEFAULT_CONFIG_FILE)).filter(|path| path.is_file());
    let named = pool_from_environment().or_else(installed);
    named.unwrap_or_else(|| EmbeddedPoolOptions::default().directory)
}

fn option_of(path: &Path, default: &Path) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if absolute(path) == absolute(default) {
        return String::new();
    }
    format!(" --pool {}", quoted(&absolute(path).display().to_string()))
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A job in a pool, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInPool {
    /// Its id.
    pub token: String,
    /// [`PoolSelection::option`] of its pool.
    pub pool_option: String,
}

impl JobInPool {
    /// The job `token` in the pool `selection`.
    pub fn new(token: &str, selection: &PoolSelection) -> JobInPool {
        JobInPool { token: token.to_owned(), pool_option: selection.option() }
    }

    /// The command that recovers it.
    pub fn recover(&self) -> String {
        format!("forebay recover --job-id {}{}", self.token, self.pool_option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_pool_unless_it_is_the_default() {
        let default = Path::new(".forebay");
        assert_eq!(option_of(Path::new("./.forebay/"), default), "");
        assert_eq!(option_of(Path::new("/ssd/pool"), default), " --pool /ssd/pool");
        assert_eq!(
            option_of(Path::new("/ssd/Ada's pool"), default),
            " --pool '/ssd/Ada'\\''s pool'"
        );
    }
}
