//! Options that need not be typed: configuration files, profiles in them, and variables.
//!
//! Whatever the command line has a long option for can be written into a file under the option's name, so [`definition`] asks
//! clap what there is, and a new option needs no code here. [`file`](mod@file) finds the files and reads them if nobody else could have
//! written them; [`table`] makes settings of what they say, and [`variables`] of the environment.
//!
//! Five levels decide: what was typed, variables, the profile, the user's file, the system's file. [`merge`] lets what a higher
//! level says displace what it contradicts in lower ones, and puts the rest between the words that were typed. The
//! command line is then parsed as if all had been typed, so the meaning of an option cannot depend on where it was written.

pub mod check;
pub mod definition;
pub mod file;
pub mod merge;
pub mod table;
pub mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::environment::Environment;
use super::error::Failure;
use super::nearest::nearest;
use crate::base::text::escape;
use definition::{Definition, Opt, Typed, Verdict};
use file::Written;

/// The command that looks for mistakes.
const CHECK: [&str; 2] = ["config", "check"];

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Typed,
    /// In a variable of this name.
    Variable(String),
    /// In a file.
    File {
        /// Which.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
        /// The profile that it stands in.
        profile: Option<String>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed => f.write_str("command line"),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line, .. } => {
                write!(f, "{}:{line}", escape(path.as_os_str().as_encoded_bytes()))
            }
        }
    }
}

/// What an option is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Whether it stands there.
    Flag(bool),
    /// How many times.
    Count(u8),
    /// With what values.
    Texts(Vec<OsString>),
    /// Something that nobody shall see.
    Secret,
}

impl Value {
    /// Whether it says anything, besides that nothing else shall be said.
    #[must_use]
    pub fn is_present(&self) -> bool {
        match self {
            Self::Flag(on) => *on,
            Self::Count(times) => *times > 0,
            Self::Texts(texts) => !texts.is_empty(),
            Self::Secret => true,
        }
    }
}

/// An option that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The command; empty for a common option.
    pub section: Vec<String>,
    /// The option.
    pub option: Opt,
    /// Its value.
    pub value: Value,
    /// Where it was written.
    pub origin: Origin,
    /// The options, by their keys, that it is refused without.
    pub needs: BTreeSet<String>,
}

/// What decides.
#[derive(Debug)]
pub struct Configured {
    /// What can be set.
    pub definition: Definition,
    /// The command line as it was typed.
    pub typed: Typed,
    /// The files that were looked for, the highest first.
    pub files: Vec<Written>,
    /// The profile that is in force.
    pub profile: Option<String>,
    /// What is set, the highest level first.
    pub levels: Vec<Vec<Setting>>,
    /// All mistakes that there are, for who asks for just these; else nothing is begun with one.
    pub mistakes: Vec<Failure>,
}

impl Configured {
    /// Reads variables and files.
    ///
    /// # Errors
    /// A mistake in them, or a file that cannot be read or trusted.
    pub fn read(definition: Definition, typed: Typed, environment: &Environment) -> Result<Self, Failure> {
        let variables = variables::settings(&definition, environment)?;
        let mut files = file::all(&definition, typed.config.as_deref(), environment)?;
        let mistakes = match typed.command == CHECK {
            true => check::all(&definition, &mut files, environment),
            false => Vec::new(),
        };
        if let Some((_, failure)) = files.iter_mut().find_map(|file| file.mistakes.drain(..).next()) {
            return Err(failure);
        }
        let profile = typed.profile.clone().or_else(|| environment.profile.clone());
        if let Some(wanted) = &profile {
            find_profile(wanted, &files)?;
        }
        let mut levels = vec![typed.settings.clone(), variables];
        let of_profile = |file: &Written| profile.as_ref().and_then(|name| file.profiles.get(name).cloned());
        levels.extend(files.iter().filter_map(of_profile));
        levels.extend(files.iter().map(|file| file.settings.clone()));
        Ok(Self { definition, typed, files, profile, levels, mistakes })
    }

    /// The words that stand for what was typed and what was written elsewhere.
    ///
    /// # Errors
    /// Two values that exclude each other stand beside each other.
    pub fn words(&self) -> Result<Vec<OsString>, Failure> {
        if self.typed.command.is_empty() {
            return Ok(self.typed.words.clone());
        }
        let in_force = merge::merge(&self.definition, &self.typed.command, &self.levels)?;
        Ok(merge::words(&self.typed.words, &in_force))
    }

    /// What is in force: the common options, and those of each command.
    ///
    /// # Errors
    /// As [`Self::words`].
    pub fn in_force(&self) -> Result<Vec<&Setting>, Failure> {
        let mut found: BTreeMap<(&[String], &str), &Setting> = BTreeMap::new();
        for command in self.definition.leaves() {
            for setting in merge::merge(&self.definition, &command, &self.levels)? {
                found.insert((&setting.section, &setting.option.key), setting);
            }
        }
        Ok(found.into_values().collect())
    }

    /// A failure that an option's value brought about, with the place where that was written.
    #[must_use]
    pub fn locate(&self, failure: Failure) -> Failure {
        let Some(option) = failure.option() else { return failure };
        let in_force = merge::merge(&self.definition, &self.typed.command, &self.levels).unwrap_or_default();
        match in_force.iter().find(|one| one.option.key == option).map(|one| &one.origin) {
            None | Some(Origin::Typed) => failure,
            Some(origin) => failure.at(origin),
        }
    }
}

fn find_profile(wanted: &str, files: &[Written]) -> Result<(), Failure> {
    let known = || files.iter().flat_map(|file| file.profiles.keys().map(String::as_str));
    if known().any(|name| name == wanted) {
        return Ok(());
    }
    let said = |path: &PathBuf| escape(path.as_os_str().as_encoded_bytes());
    let looked: Vec<_> = files.iter().map(|file| said(&file.path.to_path_buf())).collect();
    let failure = Failure::usage(format!(
        "there is no profile {} in {}",
        escape(wanted.as_bytes()),
        looked.join(" or ")
    ));
    Err(match nearest(wanted, known()) {
        Some(near) => failure.hint(format!("did you mean --profile {}?", escape(near.as_bytes()))),
        None => match known().map(|name| escape(name.as_bytes())).collect::<Vec<_>>() {
            names if names.is_empty() => failure.hint("there are none at all: write one as [profile.NAME]"),
            names => failure.hint(format!("there is {}", names.join(", "))),
        },
    })
}

/// A mistake in a file or a variable.
fn mistake(origin: &Origin, said: impl fmt::Display) -> Failure {
    Failure::usage(format!("{origin}: {said}"))
}

/// Checks the value of a setting by what clap says to it, and notes what it needs.
fn checked(definition: &Definition, mut setting: Setting) -> Result<Setting, Failure> {
    if !setting.value.is_present() {
        return Ok(setting);
    }
    let (mut words, values) = merge::spelled(&setting);
    words.extend(values);
    let (why, possible) = match definition.judge(&setting.section, words) {
        Verdict::Needs(needs) => {
            setting.needs = needs;
            return Ok(setting);
        }
        Verdict::Bad(why, possible) => (why, possible),
    };
    let Value::Texts(texts) = &setting.value else { return Ok(setting) };
    let given: Vec<_> = texts.iter().map(|text| format!("{:?}", escape(text.as_encoded_bytes()))).collect();
    let given = given.join(", ");
    if possible.is_empty() {
        return Err(mistake(&setting.origin, format!("{} {given}: {why}", setting.option.key)));
    }
    let said = format!("{} {given} is none of {}", setting.option.key, possible.join(", "));
    let near = texts.iter().find_map(|text| nearest(text.to_str()?, possible.iter().map(String::as_str)));
    let failure = mistake(&setting.origin, said);
    Err(match near {
        Some(near) => failure.hint(format!("did you mean {near:?}?")),
        None => failure,
    })
}
