//! Finding configuration files, and reading those that nobody else could have written: what they say runs commands.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::definition::Definition;
use super::table::{self, Read};
use super::{Origin, Setting, mistake};
use crate::base::text::{escape, system};
use crate::cli::environment::Environment;
use crate::cli::error::Failure;

/// The system's file, unless `KITBAG_SYSTEM_CONFIG` names another.
const SYSTEM: &str = "/etc/kitbag/config.toml";

/// A file longer than this is a mistake.
const LONGEST: u64 = 1 << 20;

/// A configuration file.
#[derive(Debug)]
pub struct Written {
    /// Where it is, or would be.
    pub path: Arc<Path>,
    /// Whether it is there.
    pub is_there: bool,
    /// What stands outside of profiles.
    pub settings: Vec<Setting>,
    /// What stands in each profile.
    pub profiles: BTreeMap<String, Vec<Setting>>,
    /// What means nothing and was left out, by line.
    pub mistakes: Vec<(usize, Failure)>,
}

/// Who may have written a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Root,
    RootOrUser,
}

/// How a file came to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By `--config`, which may name a pipe.
    Named,
    /// By looking in its place, where a pipe is not meant.
    Found,
}

/// The files in force, the highest first: the one that was named, else the user's and the system's.
///
/// # Errors
/// One cannot be read or trusted, or is no TOML.
pub fn all(
    definition: &Definition,
    named: Option<&Path>,
    environment: &Environment,
) -> Result<Vec<Written>, Failure> {
    let home = environment.home.as_deref();
    if let Some(path) = named.or(environment.config.as_deref()) {
        let written = read(definition, path, (Owner::RootOrUser, Way::Named), home)?;
        if !written.is_there {
            return Err(cannot_read(path, &io::ErrorKind::NotFound.into()));
        }
        return Ok(vec![written]);
    }
    let user = environment.config_home.clone().or_else(|| home.map(|home| home.join(".config")));
    let user = user.map(|dir| (dir.join("kitbag/config.toml"), Owner::RootOrUser));
    let system = match &environment.system_config {
        Some(path) => (path.clone(), Owner::RootOrUser),
        None => (PathBuf::from(SYSTEM), Owner::Root),
    };
    let found = |(path, owner): (PathBuf, Owner)| read(definition, &path, (owner, Way::Found), home);
    user.into_iter().chain([system]).map(found).collect()
}

fn read(
    definition: &Definition,
    path: &Path,
    (owner, way): (Owner, Way),
    home: Option<&Path>,
) -> Result<Written, Failure> {
    // Relative paths in it go by where it is, which must not change with the current directory.
    let path: Arc<Path> = std::path::absolute(path).map_err(|error| cannot_read(path, &error))?.into();
    let text = match open(&path, owner, way)? {
        Some(file) => text(file, &path)?,
        None => {
            let Read { settings, profiles, mistakes } = Read::default();
            return Ok(Written { path, is_there: false, settings, profiles, mistakes });
        }
    };
    let Read { settings, profiles, mistakes } = table::read(definition, &path, &text, home)?;
    Ok(Written { path, is_there: true, settings, profiles, mistakes })
}

fn open(path: &Path, owner: Owner, way: Way) -> Result<Option<File>, Failure> {
    let mut options = File::options();
    options.read(true);
    if way == Way::Found {
        // A pipe that nobody writes to would be waited for without end.
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = match options.open(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        opened => opened.map_err(|error| cannot_read(path, &error))?,
    };
    // Of the open file, not of its name, which may mean another one by now.
    let metadata = file.metadata().map_err(|error| cannot_read(path, &error))?;
    if way == Way::Found && !metadata.is_file() {
        // Whoever writes to it need not be whose it is.
        let what = if metadata.file_type().is_fifo() { "it is a pipe" } else { "it is no ordinary file" };
        return Err(cannot_read(path, &io::Error::other(what)).hint("name it with --config if that is meant"));
    }
    if metadata.is_file() {
        trusted(path, owner, (metadata.uid(), metadata.mode()), rustix::process::geteuid().as_raw())?;
    }
    if let (Owner::Root, Some(dir)) = (owner, path.parent()) {
        // Who can write the directory can put another file into it.
        let metadata = dir.metadata().map_err(|error| cannot_read(path, &error))?;
        trusted(dir, owner, (metadata.uid(), metadata.mode()), rustix::process::geteuid().as_raw())?;
    }
    Ok(Some(file))
}

fn trusted(path: &Path, owner: Owner, (uid, mode): (u32, u32), user: u32) -> Result<(), Failure> {
    let said = escape(path.as_os_str().as_encoded_bytes());
    if uid != 0 && !(owner == Owner::RootOrUser && uid == user) {
        let whose = if owner == Owner::Root { "root" } else { "root or you" };
        return Err(Failure::usage(format!(
            "{said} belongs to the user {uid}, who could name commands in it that are run"
        ))
        .hint(format!("it must belong to {whose}: say chown")));
    }
    if mode & 0o022 != 0 {
        return Err(Failure::usage(format!(
            "{said} can be written by others, who could name commands in it that are run"
        ))
        .hint(format!("say chmod go-w {said}")));
    }
    Ok(())
}

fn text(file: File, path: &Arc<Path>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| cannot_read(path, &error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LONGEST {
        return Err(cannot_read(path, &io::Error::other("it is longer than the megabyte that is allowed")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = table::line(error.as_bytes(), error.utf8_error().valid_up_to());
        mistake(&Origin::File { path: path.clone(), line, profile: None }, "this is no UTF-8 text")
    })
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    let said = escape(path.as_os_str().as_encoded_bytes());
    let failure = Failure::usage(format!("cannot read the configuration file {said}: {}", system(error)));
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            failure.hint("get leave to read it, or name another file with --config")
        }
        io::ErrorKind::NotFound => failure.hint("--config and KITBAG_CONFIG name a file that is there"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_could_have_written_is_refused() {
        let path = Path::new("/etc/kitbag/config.toml");
        for (owner, uid, mode, is_fine) in [
            (Owner::Root, 0, 0o644, true),
            (Owner::Root, 1000, 0o644, false),
            (Owner::Root, 0, 0o664, false),
            (Owner::Root, 0, 0o646, false),
            (Owner::RootOrUser, 1000, 0o600, true),
            (Owner::RootOrUser, 0, 0o644, true),
            (Owner::RootOrUser, 1001, 0o644, false),
            (Owner::RootOrUser, 1000, 0o620, false),
        ] {
            assert_eq!(trusted(path, owner, (uid, mode), 1000).is_ok(), is_fine, "{owner:?} {uid} {mode:o}");
        }
    }

    #[test]
    fn a_file_that_may_not_be_read_is_told() {
        let failure = cannot_read(Path::new("/etc/x"), &io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(failure.contains("/etc/x") && failure.contains("leave to read it"), "{failure}");
    }
}
