//! What can be set: asked of the command line's own definition, so that an option is settable because it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Origin, Setting, Value};

/// Options about one run: no file sets them.
const ONE_RUN: &[&str] = &["help", "version", "config", "profile", "dry-run", "yes", "even-last"];

/// Commands that go by their own line alone: they serve somebody else than the user whose files these are, or nobody.
const ALONE: &[&str] = &["serve", "completions", "man"];

/// Positional arguments that a file may set: command and id.
const POSITIONALS: &[(&str, &str)] = &[("backup", "roots")];

/// How values of options are called that name files of this machine.
const FILES: &[&str] = &["FILE", "DIR", "ROOT"];

/// The group of all that opens a repository; `KITBAG_PASSPHRASE` belongs to it without being an option.
pub const PASSPHRASE: &str = "passphrase";

/// The definition of the command line.
#[derive(Debug)]
pub struct Definition {
    command: Command,
    /// The same, built: with groups, and common options in every command.
    built: Command,
}

/// How an option is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It stands there or not.
    Flag,
    /// It stands there so many times.
    Count,
    /// With a value.
    One,
    /// With any number of values.
    Many,
}

impl Kind {
    /// Whether it can have several values.
    #[must_use]
    pub fn is_list(self) -> bool {
        self == Self::Many
    }
}

/// Whether values name a place, which may be meant from where the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// They do not.
    No,
    /// A file or directory of this machine.
    File,
    /// A repository, which may lie on this machine.
    Repository,
}

/// An option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opt {
    /// What clap calls it.
    pub id: String,
    /// What people call it: its long name.
    pub key: String,
    /// How it is given.
    pub kind: Kind,
    /// What its values name.
    pub place: Place,
    /// Whether its values stand there without its name.
    pub is_positional: bool,
    /// Whether a file may set it.
    pub is_settable: bool,
}

impl Opt {
    fn of(command: &str, arg: &Arg) -> Option<Self> {
        let id = arg.get_id().as_str();
        let is_positional = arg.is_positional();
        // What has no name of its own is about one run, and displaces what it excludes.
        let key = match arg.get_long() {
            Some(long) => long,
            None if is_positional => id,
            None => return None,
        };
        let has_name = !is_positional || POSITIONALS.contains(&(command, id));
        let kind = match arg.get_action() {
            ArgAction::SetTrue => Kind::Flag,
            ArgAction::Count => Kind::Count,
            ArgAction::Set => Kind::One,
            ArgAction::Append => Kind::Many,
            _ => return None,
        };
        let names = arg.get_value_names().unwrap_or_default();
        let is_path = arg.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
        let place = match key {
            "repository" => Place::Repository,
            _ if is_path && names.iter().any(|name| FILES.contains(&name.as_str())) => Place::File,
            _ => Place::No,
        };
        Some(Self {
            id: id.to_owned(),
            key: key.to_owned(),
            kind,
            place,
            is_positional,
            is_settable: has_name
                && !ALONE.contains(&command)
                && !ONE_RUN.contains(&key)
                && !arg.is_hide_set(),
        })
    }
}

/// What was typed.
#[derive(Debug)]
pub struct Typed {
    /// The words, the program's name first.
    pub words: Vec<OsString>,
    /// The command; empty if there is none.
    pub command: Vec<String>,
    /// Its options, and the common ones.
    pub settings: Vec<Setting>,
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--profile`
    pub profile: Option<String>,
}

impl Typed {
    /// Whether it is a command that goes by its own line alone.
    #[must_use]
    pub fn stands_alone(&self) -> bool {
        self.command.first().is_some_and(|command| ALONE.contains(&command.as_str()))
    }
}

/// What clap says to one option.
#[derive(Debug)]
pub enum Verdict {
    /// It can stand there, with these others, by their keys.
    Needs(BTreeSet<String>),
    /// Its value cannot be meant: why, and what it could be.
    Bad(String, Vec<String>),
}

impl Definition {
    /// The definition of `command`.
    #[must_use]
    pub fn new(command: Command) -> Self {
        let mut built = command.clone();
        built.build();
        Self { command: command.subcommand_required(false).arg_required_else_help(false), built }
    }

    fn at(&self, path: &[String]) -> Option<&Command> {
        path.iter().try_fold(&self.built, |command, name| command.find_subcommand(name))
    }

    /// The options of a command, but for the common ones; with an empty path the common ones.
    #[must_use]
    pub fn options(&self, path: &[String]) -> Vec<Opt> {
        let Some(command) = self.at(path) else { return Vec::new() };
        let own = command.get_arguments().filter(|arg| path.is_empty() || !arg.is_global_set());
        own.filter_map(|arg| Opt::of(command.get_name(), arg)).collect()
    }

    /// The commands below one.
    #[must_use]
    pub fn commands(&self, path: &[String]) -> Vec<String> {
        let below = self.at(path).into_iter().flat_map(Command::get_subcommands);
        below.filter(|one| one.get_name() != "help").map(|one| one.get_name().to_owned()).collect()
    }

    /// All commands that have no others below them.
    #[must_use]
    pub fn leaves(&self) -> Vec<Vec<String>> {
        let (mut open, mut found) = (vec![Vec::new()], Vec::new());
        while let Some(path) = open.pop() {
            let below = self.commands(&path);
            if below.is_empty() {
                found.push(path);
                continue;
            }
            open.extend(below.into_iter().rev().map(|name| [path.clone(), vec![name]].concat()));
        }
        found
    }

    /// For each option of a command, and each common one, the ids of those that it excludes.
    #[must_use]
    pub fn rivals(&self, path: &[String]) -> BTreeMap<String, BTreeSet<String>> {
        let mut rivals: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut exclude = |one: &str, other: &str| {
            if one != other {
                rivals.entry(one.to_owned()).or_default().insert(other.to_owned());
                rivals.entry(other.to_owned()).or_default().insert(one.to_owned());
            }
        };
        let levels = [Some(&self.built), self.at(path)];
        for command in levels.into_iter().flatten() {
            for arg in command.get_arguments() {
                for other in command.get_arg_conflicts_with(arg) {
                    exclude(arg.get_id().as_str(), other.get_id().as_str());
                }
            }
            for group in command.get_groups() {
                if group.clone().is_multiple() {
                    continue;
                }
                let members: Vec<_> = group.get_args().collect();
                for one in &members {
                    exclude(one.as_str(), group.get_id().as_str());
                    members.iter().for_each(|other| exclude(one.as_str(), other.as_str()));
                }
            }
        }
        rivals
    }

    /// What was typed, as far as it can be understood. `--FLAG=true` and `--FLAG=false` are understood here, and nowhere else.
    ///
    /// # Errors
    /// Help or the version is wanted.
    pub fn typed(&self, words: Vec<OsString>) -> Result<Typed, clap::Error> {
        let (words, taken_back) = self.without_values_of_flags(words);
        let matches = self.command.clone().ignore_errors(true).try_get_matches_from(&words)?;
        let mut typed = Typed {
            words,
            command: Vec::new(),
            settings: taken_back,
            config: matches.get_one::<PathBuf>("config").cloned(),
            profile: matches.get_one::<String>("profile").cloned(),
        };
        let mut at = &matches;
        loop {
            for option in self.options(&typed.command) {
                if at.value_source(&option.id) == Some(clap::parser::ValueSource::CommandLine) {
                    typed.settings.retain(|one| one.option.id != option.id);
                    let value = value(at, &option);
                    let section = typed.command.clone();
                    typed.settings.push(Setting {
                        section,
                        option,
                        value,
                        origin: Origin::Typed,
                        needs: BTreeSet::new(),
                    });
                }
            }
            let Some((name, below)) = at.subcommand() else { break };
            typed.command.push(name.to_owned());
            at = below;
        }
        // A flag that another command has was not taken back.
        typed.settings.retain(|one| typed.command.starts_with(&one.section));
        Ok(typed)
    }

    fn without_values_of_flags(&self, words: Vec<OsString>) -> (Vec<OsString>, Vec<Setting>) {
        let sections = [vec![Vec::new()], self.leaves()].concat();
        let flags: Vec<(Vec<String>, Opt)> = sections
            .iter()
            .flat_map(|path| self.options(path).into_iter().map(move |option| (path.clone(), option)))
            .filter(|(_, option)| option.kind == Kind::Flag)
            .collect();
        let (mut kept, mut off) = (Vec::new(), Vec::new());
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                kept.push(word);
                kept.extend(words);
                break;
            }
            let split = word.to_str().and_then(|text| text.strip_prefix("--")?.split_once('='));
            let named: Vec<_> = split.map_or_else(Vec::new, |(name, _)| {
                flags.iter().filter(|(_, option)| option.key == name).collect()
            });
            match split {
                Some((name, "true")) if !named.is_empty() => kept.push(format!("--{name}").into()),
                Some((_, "false")) if !named.is_empty() => {
                    off.extend(named.into_iter().map(|(section, option)| Setting {
                        section: section.clone(),
                        option: option.clone(),
                        value: Value::Flag(false),
                        origin: Origin::Typed,
                        needs: BTreeSet::new(),
                    }));
                }
                _ => kept.push(word),
            }
        }
        (kept, off)
    }

    /// What clap says to these words in a command.
    #[must_use]
    pub fn judge(&self, path: &[String], words: Vec<OsString>) -> Verdict {
        let parse = |words: Vec<OsString>| {
            let all = std::iter::once("kitbag".into()).chain(path.iter().map(OsString::from)).chain(words);
            self.command.clone().try_get_matches_from(all).err()
        };
        let Some(error) = parse(words) else { return Verdict::Needs(BTreeSet::new()) };
        match error.kind() {
            ErrorKind::InvalidValue => Verdict::Bad(String::new(), strings(&error, ContextKind::ValidValue)),
            ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => {
                let why = std::error::Error::source(&error).map(ToString::to_string);
                Verdict::Bad(why.unwrap_or_else(|| "it is no text".to_owned()), Vec::new())
            }
            _ => {
                let always = parse(Vec::new()).map(|error| missing(&error)).unwrap_or_default();
                Verdict::Needs(missing(&error).difference(&always).cloned().collect())
            }
        }
    }
}

/// The keys of the options that an error misses.
fn missing(error: &clap::Error) -> BTreeSet<String> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return BTreeSet::new();
    }
    let shown = strings(error, ContextKind::InvalidArg);
    // As in `--keep <POLICY>`.
    let long = |one: &String| one.strip_prefix("--")?.split([' ', '=']).next().map(str::to_owned);
    shown.iter().filter_map(long).collect()
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(all)) => all.clone(),
        Some(ContextValue::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

fn value(matches: &ArgMatches, option: &Opt) -> Value {
    let texts = || matches.get_raw(&option.id).into_iter().flatten().map(OsString::from).collect();
    match option.kind {
        Kind::Flag => Value::Flag(matches.get_flag(&option.id)),
        Kind::Count => Value::Count(matches.get_count(&option.id)),
        Kind::One | Kind::Many => Value::Texts(texts()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Args;
    use clap::CommandFactory as _;

    fn definition() -> Definition {
        Definition::new(Args::command())
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn path(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn typed(line: &str) -> Typed {
        definition().typed(words(line)).expect("no help")
    }

    /// Whoever adds an option need not think of configuration files, but for one thing: what a value is called says what it names.
    #[test]
    fn every_path_is_called_so() {
        let known = ["FILE", "DIR", "ROOT", "PATH", "NAME"];
        let mut open = vec![definition().built];
        while let Some(command) = open.pop() {
            for arg in command.get_arguments() {
                let is_path = arg.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
                let names = arg.get_value_names().unwrap_or_default();
                let is_known = names.iter().any(|name| known.contains(&name.as_str()));
                assert!(
                    !is_path || is_known,
                    "{arg} of {}: its value is called {names:?}",
                    command.get_name()
                );
            }
            open.extend(command.get_subcommands().cloned());
        }
    }

    /// Else `--NAME=false` would mean two things.
    #[test]
    fn a_name_is_a_flag_everywhere_or_nowhere() {
        let definition = definition();
        let all: Vec<_> = [vec![Vec::new()], definition.leaves()]
            .concat()
            .iter()
            .flat_map(|path| definition.options(path))
            .map(|option| (option.key, option.kind == Kind::Flag))
            .collect();
        let mixed: Vec<_> =
            all.iter().filter(|(key, is_flag)| all.contains(&(key.clone(), !is_flag))).collect();
        assert!(mixed.is_empty(), "{mixed:?}");
    }

    #[test]
    fn what_can_be_set() {
        let definition = definition();
        let settable = |command: &str| -> Vec<_> {
            let options = definition.options(&path(command)).into_iter();
            options.filter(|one| one.is_settable).map(|one| one.key).collect()
        };
        assert!(
            settable("").contains(&"repository".to_owned()) && !settable("").contains(&"help".to_owned())
        );
        assert!(!settable("").contains(&"config".to_owned()));
        let backup = settable("backup");
        assert!(backup.contains(&"roots".to_owned()) && !backup.contains(&"repository".to_owned()));
        assert!(!backup.contains(&"dry-run".to_owned()));
        assert_eq!(settable("ls"), ["generation", "long"]);
        assert!(definition.options(&path("forget")).iter().any(|one| one.is_positional && !one.is_settable));
        let leaves = definition.leaves();
        assert!(leaves.contains(&path("key add")) && leaves.contains(&path("backup")));
        assert!(!leaves.contains(&path("key")) && leaves.iter().all(|one| !one.contains(&"help".to_owned())));
    }

    #[test]
    fn what_excludes_what() {
        let rivals = definition().rivals(&path("backup"));
        let exclude = |one: &str, other: &str| rivals[one].contains(other) && rivals[other].contains(one);
        assert!(exclude("no_cache", "cache_size") && exclude("quiet", "verbose"));
        assert!(exclude("passphrase_file", "passphrase_command") && exclude(PASSPHRASE, "passphrase_fd"));
        assert!(exclude("gc", "dry_run") && !rivals.contains_key("excludes"));
        assert!(rivals.iter().all(|(one, others)| !others.contains(one)));
    }

    #[test]
    fn what_was_typed() {
        let typed = typed("kitbag -vv key add -r here --label x --profile p");
        assert_eq!(typed.command, ["key", "add"]);
        assert_eq!(typed.profile.as_deref(), Some("p"));
        let values: BTreeMap<_, _> =
            typed.settings.iter().map(|one| (one.option.key.as_str(), one.value.clone())).collect();
        assert_eq!(values["verbose"], Value::Count(2));
        assert_eq!(values["repository"], Value::Texts(vec!["here".into()]));
        assert_eq!(values["label"], Value::Texts(vec!["x".into()]));
        assert_eq!(values.len(), 4);
        assert!(definition().typed(words("kitbag backup --help")).is_err());
    }

    #[test]
    fn flags_with_values() {
        let off = typed("kitbag backup --json=false --no-cache=true --gc=false -- --quiet=false");
        let values: Vec<_> =
            off.settings.iter().map(|one| (one.option.key.as_str(), one.value.is_present())).collect();
        assert_eq!(values, [("json", false), ("gc", false), ("no-cache", true), ("roots", true)]);
        assert_eq!(off.words, words("kitbag backup --no-cache -- --quiet=false"));
        // Not those of other commands, nor what is no flag.
        assert_eq!(typed("kitbag generations --gc=false").settings, []);
        assert_eq!(typed("kitbag generations --client-name=false").words.len(), 3);
    }

    #[test]
    fn what_an_option_needs() {
        let definition = definition();
        let needs = |command: &str, line: &str| match definition.judge(&path(command), words(line)) {
            Verdict::Needs(keys) => keys.into_iter().collect::<Vec<_>>(),
            Verdict::Bad(why, possible) => vec![format!("bad: {why} {possible:?}")],
        };
        assert_eq!(needs("backup", "--encryption=none"), ["init"]);
        assert_eq!(needs("fsck", "--sample=5%"), ["read-data"]);
        assert_eq!(needs("forget", "--all-clients"), ["keep"]);
        assert!(needs("backup", "--gc").is_empty() && needs("", "--json").is_empty());
        assert!(needs("backup", "/home /etc").is_empty() && needs("key add", "--label=x").is_empty());
        assert!(needs("backup", "--compression=9")[0].starts_with("bad:"));
    }
}
