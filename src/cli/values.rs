//! What the values of options can be, judged without the command that they are for: by the same parsers.

use std::ffi::OsStr;
use std::path::Path;

use super::commands::{backup, find, forget, fsck, gc, last_backup_age, mount};
use super::config::{Setting, Value};
use super::error::Failure;
use super::nightly::night;
use super::settings;
use crate::generation::{Spec, tags};
use crate::live::exclude::Rules;

/// Whether the command would take the values of a setting, wherever that was written.
///
/// # Errors
/// Why not, and where it was written.
pub fn judge(setting: &Setting) -> Result<(), Failure> {
    let Value::Texts(texts) = &setting.value else { return Ok(()) };
    let command = setting.section.join(" ");
    let judged = texts.iter().try_for_each(|text| judge_one(&command, &setting.option.key, text));
    judged.map_err(|failure| failure.at(&setting.origin))
}

/// The same of one value of an option. What clap has judged, and what may be any text, is fine.
fn judge_one(command: &str, option: &str, text: &OsStr) -> Result<(), Failure> {
    let path = Path::new(text);
    // What is to be a text was found to be one.
    let Some(text) = text.to_str() else { return Ok(()) };
    match (command, option) {
        ("", "client-name") => settings::valid_client(text),
        ("", "cache-size") => settings::cache_size(text).map(drop),
        ("", "limit-upload" | "limit-download") => settings::rate(option, text).map(drop),
        ("", "link-timeout") => settings::link_timeout(text).map(drop),
        ("", "give-up-after") => settings::give_up_after(text).map(drop),
        ("", "ssh-option") => settings::ssh_option(text).map(drop),
        ("backup", "exclude") => {
            Ok(Rules { globs: vec![text.to_owned()], ..Rules::default() }.build().map(drop)?)
        }
        ("backup", "exclude-from") => {
            let mut rules = Rules::default();
            backup::exclude_from(&mut rules, path)?;
            Ok(rules.build().map(drop)?)
        }
        ("backup", "checkpoint") => backup::every(text).map(drop),
        ("backup", "tag") => Ok(tags::check(text)?),
        ("backup", "forget") => forget::policy("forget", text).map(drop),
        ("backup", "hook-timeout") => night::hook_timeout(text).map(drop),
        ("forget", "keep") => forget::policy("keep", text).map(drop),
        ("fsck", "sample") => fsck::share(text).map(drop),
        ("fsck", "time-budget") => fsck::time_budget(text).map(drop),
        ("gc", "max-repack") => gc::max_repack(text).map(drop),
        ("find", "min-size" | "max-size") => find::size(option, text).map(drop),
        ("find", "newer" | "older") => find::when(option, text).map(drop),
        ("mount", "memory") => mount::memory(text).map(drop),
        ("mount", "refresh") => mount::refresh(text).map(drop),
        ("last-backup-age", "warn" | "critical") => last_backup_age::age(option, text).map(drop),
        (_, "generation") => Ok(text.parse::<Spec>().map(drop)?),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::args::Args;
    use crate::cli::config::definition::Definition;

    /// Texts that can be anything: commands of the shell, and names.
    const FREE: [&str; 7] =
        ["passphrase-command", "before", "after", "on-failure", "label", "client", "client-name"];

    #[test]
    fn whatever_is_parsed_is_judged() {
        let definition = Definition::new(Args::command());
        let mut built = Args::command();
        built.build();
        let mut judged = 0;
        for path in [vec![Vec::new()], definition.leaves()].concat() {
            let command = path.iter().try_fold(&built, |command, name| command.find_subcommand(name));
            for option in definition.options(&path).into_iter().filter(|option| option.is_settable) {
                let mut args = command.expect("it is there").get_arguments();
                let arg = args.find(|arg| arg.get_id().as_str() == option.id).expect("it is there");
                let is_text = arg.get_value_parser().type_id() == TypeId::of::<String>();
                if !is_text || FREE.contains(&option.key.as_str()) {
                    continue;
                }
                // Neither a number, nor a time, nor a word of any kind.
                let outcome = judge_one(&path.join(" "), &option.key, OsStr::new("[\n"));
                assert!(outcome.is_err(), "{path:?} {}: nobody judges it", option.key);
                judged += 1;
            }
        }
        assert!(judged > 20, "{judged}");
    }

    #[test]
    fn a_client_has_a_name() {
        assert!(judge_one("", "client-name", OsStr::new("a\nb")).is_err());
        assert!(judge_one("", "client-name", OsStr::new("laptop")).is_ok());
    }

    #[test]
    fn what_the_commands_take_is_fine() {
        for (command, option, text) in [
            ("", "cache-size", "500M"),
            ("", "ssh-option", "Port 22"),
            ("backup", "forget", "7d,5w"),
            ("backup", "checkpoint", "1G"),
            ("backup", "exclude", "*.o"),
            ("fsck", "sample", "5%"),
            ("find", "older", "2026-11-30"),
            ("restore", "generation", "latest~3"),
        ] {
            assert_eq!(judge_one(command, option, OsStr::new(text)), Ok(()), "{option}");
        }
    }
}
