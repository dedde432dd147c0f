//! `kitbag config`: what is set without being typed, and where that was written.

use serde::Serialize;

use crate::base::text::escape;
use crate::cli::Context;
use crate::cli::args::Config;
use crate::cli::config::{Origin, Setting, Value};
use crate::cli::error::{Exit, Failure};
use crate::cli::log::Level;
use crate::cli::output::Output;
use crate::cli::settings::Verbosity;

/// Shows or checks. Mistakes that a check finds are told each by itself.
///
/// # Errors
/// Standard output cannot be written; showing, a mistake.
pub fn run(context: &Context, what: &Config) -> Result<Exit, Failure> {
    let mut output = Output::new();
    match what {
        Config::Show => show(context, &mut output)?,
        Config::Check if !context.configured.mistakes.is_empty() => {
            for failure in &context.configured.mistakes {
                context.screen.tell(Level::Error, &format!("kitbag: {failure}"));
            }
            return Ok(Exit::Usage);
        }
        Config::Check => sound(context, &mut output)?,
    }
    output.finish()?;
    Ok(Exit::Done)
}

/// A setting.
#[derive(Serialize)]
struct Shown {
    command: Option<String>,
    option: String,
    value: serde_json::Value,
    from: &'static str,
    variable: Option<String>,
    file: Option<String>,
    line: Option<usize>,
    profile: Option<String>,
}

impl Shown {
    fn of(setting: &Setting) -> Self {
        let command = setting.section.join(" ");
        let mut shown = Self {
            command: (!command.is_empty()).then_some(command),
            option: setting.option.key.clone(),
            value: value(setting),
            from: "command line",
            variable: None,
            file: None,
            line: None,
            profile: None,
        };
        match &setting.origin {
            Origin::Typed => {}
            Origin::Variable(name) => (shown.from, shown.variable) = ("variable", Some(name.clone())),
            Origin::File { path, line, profile } => {
                shown.from = "file";
                shown.file = Some(escape(path.as_os_str().as_encoded_bytes()));
                shown.line = Some(*line);
                shown.profile = profile.as_deref().map(|name| escape(name.as_bytes()));
            }
        }
        shown
    }

    fn line(&self) -> String {
        let from = match (&self.variable, &self.file, self.line) {
            (Some(name), ..) => name.clone(),
            (_, Some(file), Some(line)) => format!("{file}:{line}"),
            _ => self.from.to_owned(),
        };
        let profile = self.profile.as_ref().map_or_else(String::new, |name| format!(", profile {name}"));
        match &self.value {
            serde_json::Value::Null => format!("# {}: not shown, {from}", self.option),
            value => format!("{} = {value}  # {from}{profile}", self.option),
        }
    }
}

/// As in a file: texts in quotes, lists in brackets. JSON writes these as TOML does.
fn value(setting: &Setting) -> serde_json::Value {
    let text = |text: &std::ffi::OsString| match text.to_str() {
        Some(text) => text.to_owned(),
        None => escape(text.as_encoded_bytes()),
    };
    match &setting.value {
        Value::Secret => serde_json::Value::Null,
        Value::Flag(on) => (*on).into(),
        Value::Count(times) => (*times).into(),
        Value::Texts(texts) if setting.option.kind.is_list() => texts.iter().map(text).collect(),
        Value::Texts(texts) => texts.first().map(text).into(),
    }
}

fn show(context: &Context, output: &mut Output) -> Result<(), Failure> {
    let is_json = context.settings.json;
    let configured = &context.configured;
    if !is_json {
        for file in configured.files.iter().filter(|file| file.is_there) {
            let path = escape(file.path.as_os_str().as_encoded_bytes());
            // Not "with": that they are there does not say that one is in force.
            let profiles = profiles(file.profiles.keys());
            let has = profiles.strip_prefix(", with").map(|rest| format!(" has{rest}"));
            output.line(format_args!("# {path}{}", has.unwrap_or_default()))?;
        }
        if let Some(name) = &configured.profile {
            output.line(format_args!("# profile {}", escape(name.as_bytes())))?;
        }
    }
    let mut section: &[String] = &[];
    // What is about this run alone stands in no file.
    let in_force = configured.in_force()?;
    for setting in in_force.into_iter().filter(|one| one.option.is_settable || one.value == Value::Secret) {
        let shown = Shown::of(setting);
        if is_json {
            output.json(&shown)?;
            continue;
        }
        if setting.section != section {
            section = &setting.section;
            output.line(format_args!("\n[{}]", section.join(".")))?;
        }
        output.line(shown.line())?;
    }
    Ok(())
}

fn profiles<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(|name| escape(name.as_bytes())).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!(", with the profile {one}"),
        all => format!(", with the profiles {}", all.join(", ")),
    }
}

/// A file that was looked at.
#[derive(Serialize)]
struct Checked {
    file: String,
    is_there: bool,
    profiles: Vec<String>,
}

/// There is no mistake.
fn sound(context: &Context, output: &mut Output) -> Result<(), Failure> {
    for file in &context.configured.files {
        let path = escape(file.path.as_os_str().as_encoded_bytes());
        if context.settings.json {
            let profiles = file.profiles.keys().map(|name| escape(name.as_bytes())).collect();
            output.json(&Checked { file: path, is_there: file.is_there, profiles })?;
        } else if context.settings.verbosity > Verbosity::Quiet {
            let said = if file.is_there { "sound" } else { "not there" };
            output.line(format_args!("{path}: {said}{}", profiles(file.profiles.keys())))?;
        }
    }
    Ok(())
}
