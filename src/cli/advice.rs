//! What else to say of a command line that makes no sense: what clap cannot know.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds a tip to the error, where there is one, of a line that names this command.
pub fn advise(error: &mut clap::Error, command: &[String]) {
    let tip = match error.kind() {
        ErrorKind::MissingRequiredArgument => of_missing(command),
        ErrorKind::InvalidSubcommand if command.is_empty() => {
            match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(word)) => of_foreign(word),
                _ => None,
            }
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
}

fn of_missing(command: &[String]) -> Option<&'static str> {
    match command.first().map(String::as_str) {
        Some("backup") => Some(
            "name what to save, as in 'kitbag backup ~', or write it below [backup] in ~/.config/kitbag/config.toml: roots = [\"~\"]",
        ),
        Some("forget") => Some(
            "name generations, as in 'kitbag forget latest~3', or say which to keep, as in 'kitbag forget --keep 7d,5w,12m,3y'",
        ),
        Some("last-backup-age") => {
            Some("say how old is too old, as in 'kitbag last-backup-age --warn 26h --critical 50h'")
        }
        _ => None,
    }
}

/// What other programs' commands are called here.
fn of_foreign(word: &str) -> Option<&'static str> {
    match word {
        "snapshots" | "list" => Some("'kitbag generations' lists what was saved, and when"),
        "check" => Some("'kitbag fsck' checks the repository"),
        "prune" | "compact" => {
            Some("'kitbag gc' gives back space, and 'kitbag forget' says what is not needed any more")
        }
        "unlock" | "force-lock" | "break-lock" => Some("there are no locks, so there is nothing to unlock"),
        "dump" => Some("'kitbag cat' writes a file, and 'kitbag export' a tar archive"),
        "create" => Some("'kitbag backup' makes a generation"),
        "extract" => Some("'kitbag restore' brings files back"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Args;
    use clap::Parser as _;

    fn said(line: &str, command: &[&str]) -> String {
        let mut error = Args::try_parse_from(line.split(' ')).expect_err("it makes no sense");
        let command: Vec<_> = command.iter().map(|word| (*word).to_owned()).collect();
        advise(&mut error, &command);
        error.to_string()
    }

    #[test]
    fn what_is_missing_is_shown_by_an_example() {
        for (command, part) in
            [("backup", "roots = ["), ("forget", "--keep 7d"), ("last-backup-age", "--warn 26h")]
        {
            let said = said(&format!("kitbag {command}"), &[command]);
            assert!(said.contains("tip: ") && said.contains(part), "{said}");
        }
        assert!(!said("kitbag restore", &["restore"]).contains("tip: "));
    }

    #[test]
    fn words_of_other_programs_are_known() {
        for (word, ours) in
            [("snapshots", "generations"), ("check", "fsck"), ("prune", "gc"), ("unlock", "locks")]
        {
            let said = said(&format!("kitbag {word}"), &[]);
            assert!(said.contains(ours), "{said}");
        }
    }
}
