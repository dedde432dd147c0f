//! Several commands as one, for the shell.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// A word for the shell, whatever it holds.
pub(super) fn quoted(word: impl AsRef<OsStr>) -> String {
    format!("'{}'", word.as_ref().to_string_lossy().replace('\'', "'\\''"))
}

/// A command as it is typed, with what it sets in the environment.
pub(super) fn spelled(command: &Command) -> String {
    let mut words = vec!["env".to_string()];
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => words.push(format!("{}={}", name.to_string_lossy(), quoted(value))),
            None => words.extend(["-u".into(), name.to_string_lossy().into_owned()]),
        }
    }
    words.push(quoted(command.get_program()));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

/// All of these at the same time; it fails where one of them does.
#[must_use]
pub fn together(commands: &[Command]) -> Command {
    let mut script = String::from("all=; failed=0\n");
    for command in commands {
        script.push_str(&format!("{} & all=\"$all $!\"\n", spelled(command)));
    }
    script.push_str("for one in $all; do wait $one || failed=$?; done; exit $failed\n");
    shell(&script)
}

/// Runs `mount`, which stays until the directory `at` is unmounted, finds all files in what is mounted `below`, reads a thousand of them, and
/// unmounts.
pub(super) fn look_through(mount: &Command, at: &Path, below: &Path) -> Command {
    let (mount, at, below) = (spelled(mount), quoted(at), quoted(below));
    shell(&format!(
        "mkdir -p {at} && {{ {mount} & }}\n\
         while ! mountpoint -q {at}; do kill -0 $! || exit 1; sleep 0.01; done\n\
         find {below}/ -type f -print0 | head -z -n 1000 | xargs -0 cat | wc -c\n\
         find {below}/ | wc -l\n\
         fusermount3 -u {at} || fusermount -u {at} || umount {at}\n\
         wait $!\n"
    ))
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_run_with_their_environment_and_one_failure_is_enough() {
        let mut first = Command::new("sh");
        first.args(["-c", "echo \"$WORD\"; test -z \"$HOME\""]).env("WORD", "it's").env_remove("HOME");
        let output = together(&[first]).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"it's\n");
        let commands = [Command::new("true"), Command::new("false"), Command::new("true")];
        assert_eq!(together(&commands).status().expect("it runs").code(), Some(1));
    }
}
