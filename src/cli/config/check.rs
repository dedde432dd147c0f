//! All mistakes of the files at once, for who asks for them.
//!
//! What cannot be meant at all is found when a file is read. Besides, every value is judged as the command would that it is for, and what stands beside
//! something that excludes it is found, in each profile. What is wrong is taken out, so that the rest can be looked at.

use super::definition::Definition;
use super::file::Written;
use super::{Origin, Setting, merge, variables};
use crate::cli::environment::Environment;
use crate::cli::error::Failure;
use crate::cli::values;

/// Takes all mistakes out of the files. A mistyped variable is one, too: other programs may have some of their own, so that is none for other commands.
pub fn all(definition: &Definition, files: &mut [Written], environment: &Environment) -> Vec<Failure> {
    let mut found = Vec::new();
    for file in files {
        let mut mistakes = std::mem::take(&mut file.mistakes);
        for level in file.profiles.values_mut().chain([&mut file.settings]) {
            level.retain(|setting| keep(setting, values::judge(setting).err(), &mut mistakes));
            let clashes = merge::all_clashes(definition, level);
            let mut clashes: Vec<_> =
                clashes.into_iter().map(|(setting, failure)| (setting.clone(), failure)).collect();
            level.retain(|setting| {
                let clash = clashes.iter().position(|(clash, _)| clash == setting);
                let failure = clash.map(|at| clashes.swap_remove(at).1);
                keep(setting, failure, &mut mistakes)
            });
        }
        mistakes.sort_by_key(|(line, _)| *line);
        found.extend(mistakes.into_iter().map(|(_, failure)| failure));
    }
    found.extend(variables::mistyped(definition, environment).map(|(name, near)| {
        let said = format!("the variable {name} stands for no option");
        Failure::usage(said).hint(format!("did you mean {near}?"))
    }));
    found
}

/// Whether nothing is wrong with a setting; else that is noted.
fn keep(setting: &Setting, failure: Option<Failure>, mistakes: &mut Vec<(usize, Failure)>) -> bool {
    let line = match &setting.origin {
        Origin::File { line, .. } => *line,
        Origin::Typed | Origin::Variable(_) => 0,
    };
    let Some(failure) = failure else { return true };
    mistakes.push((line, failure));
    false
}
