//! From the text of a file to settings. Every mistake is told with its line and the nearest word that would be right.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::definition::{Definition, Kind, Opt, Place};
use super::{Origin, Setting, Value, checked, mistake};
use crate::base::text::escape;
use crate::cli::error::Failure;
use crate::cli::nearest::nearest;
use crate::store::open::Location;

/// The table of profiles.
const PROFILE: &str = "profile";

/// What was read of a file.
#[derive(Debug, Default)]
pub struct Read {
    /// What stands outside of profiles.
    pub settings: Vec<Setting>,
    /// What stands in each profile.
    pub profiles: BTreeMap<String, Vec<Setting>>,
    /// What means nothing and was left out, by line.
    pub mistakes: Vec<(usize, Failure)>,
}

/// What a file says.
///
/// # Errors
/// It is no TOML.
pub fn read(
    definition: &Definition,
    path: &Arc<Path>,
    text: &str,
    home: Option<&Path>,
) -> Result<Read, Failure> {
    let mut reader = Reader { definition, path, text, home, profile: None, read: Read::default() };
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        mistake(&reader.origin(at), format!("this is no TOML: {}", error.message().replace('\n', ", ")))
    })?;
    reader.table(&[], document.get_ref());
    if let Some((key, value)) = document.get_ref().get_key_value(PROFILE) {
        let settings = std::mem::take(&mut reader.read.settings);
        reader.profiles(key, value.get_ref());
        reader.read.settings = settings;
    }
    reader.read.mistakes.sort_by_key(|(line, _)| *line);
    Ok(reader.read)
}

/// The line of the byte at `offset`, counted from 1.
#[must_use]
pub fn line(text: &[u8], offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.split(|byte| *byte == b'\n').count()
}

/// A table's entries as they stand in the file, so that the first mistake is the first one told.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<(&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn shown(text: &str) -> String {
    escape(text.as_bytes())
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date without quotes",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Reads one file.
struct Reader<'a> {
    definition: &'a Definition,
    path: &'a Arc<Path>,
    text: &'a str,
    home: Option<&'a Path>,
    profile: Option<String>,
    read: Read,
}

impl Reader<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let line = line(self.text.as_bytes(), offset);
        Origin::File { path: self.path.clone(), line, profile: self.profile.clone() }
    }

    /// Notes a mistake at `offset`.
    fn wrong(&mut self, offset: usize, failure: Failure) {
        self.read.mistakes.push((line(self.text.as_bytes(), offset), failure));
    }

    /// Reads all profiles.
    fn profiles(&mut self, key: &Spanned<DeString<'_>>, value: &DeValue<'_>) {
        let DeValue::Table(named) = value else {
            let (at, said) = (
                key.span().start,
                "profile is no option: write profiles as [profile.NAME], and name one with --profile",
            );
            return self.wrong(at, mistake(&self.origin(at), said));
        };
        for (name, value) in in_order(named) {
            let at = name.span().start;
            let DeValue::Table(table) = value.get_ref() else {
                let said = format!("{} is no profile: write it as [profile.NAME]", shown(name.get_ref()));
                self.wrong(at, mistake(&self.origin(at), said));
                continue;
            };
            self.profile = Some(name.get_ref().to_string());
            self.table(&[], table);
            let settings = std::mem::take(&mut self.read.settings);
            self.read.profiles.insert(name.get_ref().to_string(), settings);
        }
    }

    /// Reads the options of a command, and of those below it.
    fn table(&mut self, section: &[String], table: &DeTable<'_>) {
        let options = self.definition.options(section);
        let commands = self.definition.commands(section);
        for (key, value) in in_order(table) {
            let (name, value) = (key.get_ref().as_ref(), value.get_ref());
            if section.is_empty() && self.profile.is_none() && name == PROFILE {
                continue;
            }
            let is_command = commands.iter().any(|command| command == name);
            if let (true, DeValue::Table(below)) = (is_command, value) {
                self.table(&[section, &[name.to_owned()]].concat(), below);
                continue;
            }
            let at = key.span().start;
            let origin = self.origin(at);
            let setting = match options.iter().find(|option| option.key == name) {
                Some(option) => self.setting(section, option, value, origin),
                None if is_command => {
                    let said = format!("{name} is a command: its options stand below [{name}]");
                    Err(mistake(&origin, said))
                }
                None => Err(self.unknown(section, name, matches!(value, DeValue::Table(_)), &origin)),
            };
            match setting {
                Ok(setting) => self.read.settings.push(setting),
                Err(failure) => self.wrong(at, failure),
            }
        }
    }

    fn setting(
        &self,
        section: &[String],
        option: &Opt,
        value: &DeValue<'_>,
        origin: Origin,
    ) -> Result<Setting, Failure> {
        if !option.is_settable {
            let said = format!("{} is about one run, and is given on the command line only", option.key);
            return Err(mistake(&origin, said));
        }
        let value = self.value(option, value, &origin)?;
        let (section, option) = (section.to_vec(), option.clone());
        checked(self.definition, Setting { section, option, value, origin, needs: BTreeSet::new() })
    }

    /// What to say of a word that means nothing here.
    fn unknown(&self, section: &[String], name: &str, is_table: bool, origin: &Origin) -> Failure {
        let said = shown(name);
        if name == super::definition::PASSPHRASE {
            return mistake(origin, "a passphrase does not stand in a configuration file")
                .hint("name where it is with passphrase-file, or what prints it with passphrase-command");
        }
        if is_table {
            let failure = mistake(origin, format!("there is no command {said}"));
            let mut known = self.definition.commands(section);
            known.push(PROFILE.to_owned());
            return match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => failure.hint(format!("did you mean [{near}]?")),
                None => failure,
            };
        }
        let all = || std::iter::once(Vec::new()).chain(self.definition.leaves());
        let known = |path: &[String]| {
            let options = self.definition.options(path).into_iter().filter(|option| option.is_settable);
            options.map(|option| option.key).collect::<Vec<_>>()
        };
        let failure = match section {
            [] => mistake(origin, format!("there is no common option {said}")),
            _ => mistake(origin, format!("{} has no option {said}", section.join(" "))),
        };
        if let Some(elsewhere) =
            all().find(|path| path != section && known(path).iter().any(|key| key == name))
        {
            return match elsewhere.as_slice() {
                [] => failure.hint("it is one of all commands: write it above the first [command]"),
                path => failure.hint(format!(
                    "it is one of `kitbag {}`: write it below [{}]",
                    path.join(" "),
                    path.join(".")
                )),
            };
        }
        match nearest(name, known(section).iter().map(String::as_str)) {
            Some(near) => failure.hint(format!("did you mean {near}?")),
            None => failure.hint("`kitbag --help` and `kitbag COMMAND --help` have all options"),
        }
    }

    fn value(&self, option: &Opt, value: &DeValue<'_>, origin: &Origin) -> Result<Value, Failure> {
        let wrong = |wanted: &str| {
            let found = kind_of(value);
            Err(mistake(origin, format!("{} must be {wanted}, and is {found}", option.key)))
        };
        match (option.kind, value) {
            (Kind::Flag, DeValue::Boolean(on)) => Ok(Value::Flag(*on)),
            (Kind::Flag, _) => wrong("true or false"),
            (Kind::Count, DeValue::Boolean(on)) => Ok(Value::Count(u8::from(*on))),
            (Kind::Count, DeValue::Integer(number)) => match number.to_string().parse() {
                Ok(times) => Ok(Value::Count(times)),
                Err(_) => Err(mistake(origin, format!("{} is a number from 0 to 255", option.key))),
            },
            (Kind::Count, _) => wrong("a number of times"),
            (Kind::Many, DeValue::Array(all)) => {
                let texts: Result<Vec<_>, _> = all
                    .iter()
                    .map(|one| {
                        let origin = self.origin(one.span().start);
                        match scalar(one.get_ref()) {
                            Some(text) => self.placed(option, text, &origin),
                            None => {
                                let found = kind_of(one.get_ref());
                                let said = format!("{} is a list of texts, and this is {found}", option.key);
                                Err(mistake(&origin, said))
                            }
                        }
                    })
                    .collect();
                Ok(Value::Texts(texts?))
            }
            (Kind::One | Kind::Many, value) => match scalar(value) {
                Some(text) => Ok(Value::Texts(vec![self.placed(option, text, origin)?])),
                None if option.kind == Kind::Many => wrong("a list of texts"),
                None => wrong("a text in quotes"),
            },
        }
    }

    /// A value that names a place, meant from where the file is.
    fn placed(&self, option: &Opt, text: String, origin: &Origin) -> Result<OsString, Failure> {
        if text.contains('\0') {
            return Err(mistake(origin, format!("{} holds a zero byte", option.key)));
        }
        if option.place == Place::No {
            return Ok(text.into());
        }
        if text.is_empty() {
            return Err(mistake(origin, format!("{} is empty", option.key)));
        }
        let in_home = |rest: &str| match self.home {
            Some(home) if rest.is_empty() => Ok(home.as_os_str().to_owned()),
            Some(home) => Ok(home.join(rest).into_os_string()),
            None => Err(mistake(origin, format!("{text:?} is below a home directory, and there is none"))),
        };
        if text == "~" {
            return in_home("");
        }
        if let Some(rest) = text.strip_prefix("~/") {
            return in_home(rest.trim_start_matches('/'));
        }
        if option.place == Place::File && text.starts_with('~') {
            let said =
                format!("{} {text:?}: only your own home can be named by a tilde (~/path)", option.key);
            return Err(mistake(origin, said));
        }
        if option.place == Place::Repository {
            return match Location::parse(OsStr::new(&text)) {
                Ok(Location::Local(path)) => Ok(self.in_directory(&path).into_os_string()),
                Ok(Location::Sftp(_)) => Ok(text.into()),
                Err(error) => Err(mistake(origin, error)),
            };
        }
        Ok(self.in_directory(Path::new(OsStr::from_bytes(text.as_bytes()))).into_os_string())
    }

    fn in_directory(&self, path: &Path) -> PathBuf {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        // `.` means the directory itself, whose name is nicer without it.
        dir.join(path).components().collect()
    }
}

/// A text, or a number as it is typed on a command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}
