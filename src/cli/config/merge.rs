//! Several levels become one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use super::definition::Definition;
use super::{Origin, Setting, Value, mistake};
use crate::cli::error::Failure;

/// What is in force for a command, from levels of which the first is the highest. An option that a higher level has, or that it
/// contradicts, is left out, and one that needs another that is nowhere.
///
/// # Errors
/// Two settings of one level exclude each other. Of the command line that is clap's to say.
pub fn merge<'a>(
    definition: &Definition,
    command: &[String],
    levels: &'a [Vec<Setting>],
) -> Result<Vec<&'a Setting>, Failure> {
    let rivals = definition.rivals(command);
    let mut in_force: Vec<&Setting> = Vec::new();
    for level in levels {
        let ours = level.iter().filter(|one| command.starts_with(&one.section));
        let left: Vec<_> = ours
            .filter(|one| in_force.iter().all(|above| above.option.id != one.option.id))
            .filter(|one| !in_force.iter().any(|above| are_rivals(&rivals, above, one)))
            .collect();
        if let Some((_, failure)) = clashes(&rivals, &left).next() {
            return Err(failure);
        }
        in_force.extend(left);
    }
    leave_out_what_lacks(&mut in_force);
    Ok(in_force)
}

/// What one level has for any command though something before it excludes it, with what to say of that.
#[must_use]
pub fn all_clashes<'a>(definition: &Definition, level: &'a [Setting]) -> Vec<(&'a Setting, Failure)> {
    let mut found: Vec<(&Setting, Failure)> = Vec::new();
    for command in definition.leaves() {
        let ours: Vec<_> = level.iter().filter(|one| command.starts_with(&one.section)).collect();
        for (setting, failure) in clashes(&definition.rivals(&command), &ours) {
            // Common options clash in every command.
            if found.iter().all(|(known, _)| !std::ptr::eq(*known, setting)) {
                found.push((setting, failure));
            }
        }
    }
    found
}

/// For each option, by its id, those that it excludes.
type Rivals = BTreeMap<String, BTreeSet<String>>;

fn are_rivals(rivals: &Rivals, one: &Setting, other: &Setting) -> bool {
    let excludes = rivals.get(&one.option.id).is_some_and(|ids| ids.contains(&other.option.id));
    excludes && one.value.is_present() && other.value.is_present()
}

/// The settings that exclude one before them.
fn clashes<'a>(rivals: &Rivals, level: &[&'a Setting]) -> impl Iterator<Item = (&'a Setting, Failure)> {
    level.iter().enumerate().filter(|(_, one)| one.origin != Origin::Typed).filter_map(|(at, one)| {
        let other = level.iter().take(at).find(|other| are_rivals(rivals, one, other))?;
        let said = format!("{} and {} exclude each other", one.option.key, other.option.key);
        Some((*one, mistake(&one.origin, said).hint(format!("the other is {}", other.origin))))
    })
}

/// Leaves out what needs an option that is not in force: the word for it would be refused.
fn leave_out_what_lacks(in_force: &mut Vec<&Setting>) {
    loop {
        let present = in_force.iter().filter(|one| one.value.is_present());
        let keys: BTreeSet<&str> = present.map(|one| one.option.key.as_str()).collect();
        let before = in_force.len();
        in_force.retain(|one| one.needs.iter().all(|key| keys.contains(key.as_str())));
        if in_force.len() == before {
            break;
        }
    }
}

/// The words for a setting: options, and values that stand alone.
#[must_use]
pub fn spelled(setting: &Setting) -> (Vec<OsString>, Vec<OsString>) {
    let name = format!("--{}", setting.option.key);
    let options = match &setting.value {
        Value::Secret => Vec::new(),
        Value::Flag(on) => vec![name.into(); usize::from(*on)],
        Value::Count(times) => vec![name.into(); usize::from(*times)],
        Value::Texts(texts) if setting.option.is_positional => return (Vec::new(), texts.clone()),
        Value::Texts(texts) => texts
            .iter()
            .map(|text| {
                let mut word = OsString::from(format!("{name}="));
                word.push(text);
                word
            })
            .collect(),
    };
    (options, Vec::new())
}

/// What was typed, with what is in force besides.
#[must_use]
pub fn words(typed: &[OsString], in_force: &[&Setting]) -> Vec<OsString> {
    let (mut options, mut values) = (Vec::new(), Vec::new());
    for setting in in_force.iter().filter(|one| one.origin != Origin::Typed) {
        let (more, alone) = spelled(setting);
        options.extend(more);
        values.extend(alone);
    }
    let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let (before, after) = typed.split_at(end);
    let mut words = [before, &options].concat();
    match (after.is_empty(), values.is_empty()) {
        (true, true) => {}
        (true, false) => words.push("--".into()),
        (false, _) => words.extend_from_slice(after),
    }
    words.extend(values);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Args;
    use clap::CommandFactory as _;

    fn definition() -> Definition {
        Definition::new(Args::command())
    }

    /// Settings as if they had been typed, from elsewhere.
    fn level(name: &str, line: &str) -> Vec<Setting> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let mut typed = definition().typed(words).expect("no help").settings;
        for setting in &mut typed {
            if name != "typed" {
                setting.origin = Origin::Variable(name.to_owned());
            }
            if let ("sample", true) = (setting.option.key.as_str(), name != "typed") {
                setting.needs = ["read-data".to_owned()].into();
            }
        }
        typed
    }

    fn merged(levels: &[Vec<Setting>]) -> Result<String, Failure> {
        let typed: Vec<OsString> = ["kitbag", "fsck"].map(OsString::from).into();
        let in_force = merge(&definition(), &["fsck".to_owned()], levels)?;
        let words = words(&typed, &in_force);
        Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_first_that_says_something_is_heard() {
        let levels = [
            level("typed", "k fsck --json"),
            level("A", "k fsck -r a"),
            level("B", "k fsck -r b -v --json=false"),
        ];
        assert_eq!(merged(&levels).expect("merged"), "kitbag fsck --repository=a --verbose");
    }

    #[test]
    fn what_contradicts_a_higher_level_is_not_heard() {
        let levels = [
            level("typed", "k -q fsck"),
            level("A", "k fsck -v --cache-dir x"),
            level("B", "k fsck --no-cache"),
        ];
        assert_eq!(merged(&levels).expect("merged"), "kitbag fsck --cache-dir=x");
        // What is taken back contradicts nothing.
        let levels =
            [level("typed", "k fsck --no-cache=false"), level("B", "k fsck --no-cache --cache-size 1G")];
        assert_eq!(merged(&levels).expect("merged"), "kitbag fsck --cache-size=1G");
        let failure = merged(&[level("A", "k fsck --no-cache --cache-size 1G")]).expect_err("both");
        assert!(failure.to_string().contains("exclude each other"), "{failure}");
    }

    #[test]
    fn what_needs_another_option_waits() {
        let sample = || level("A", "k fsck --sample 5%");
        assert_eq!(merged(&[sample()]).expect("merged"), "kitbag fsck");
        assert_eq!(
            merged(&[level("typed", "k fsck --read-data"), sample()]).expect("merged"),
            "kitbag fsck --sample=5%"
        );
        let levels = [level("typed", "k fsck --read-data=false"), sample(), level("B", "k fsck --read-data")];
        assert_eq!(merged(&levels).expect("merged"), "kitbag fsck");
    }

    #[test]
    fn words_come_before_a_double_dash_and_values_behind_it() {
        let typed = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let others = level("A", "k backup --gc root");
        let others: Vec<_> = others.iter().collect();
        let spelled = |line: &str| words(&typed(line), &others).join(" ".as_ref());
        assert_eq!(spelled("k backup"), "k backup --gc -- root");
        assert_eq!(spelled("k backup -- -x"), "k backup --gc -- -x root");
    }
}
