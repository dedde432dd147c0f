//! Whether the connection costs money by the byte, as NetworkManager believes.
//!
//! It is asked over D-Bus through systemd's `busctl`: a D-Bus library would bring some thirty packages for one question.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use super::hook::{Ended, wait_for};
use crate::base::cancel::Cancel;
use crate::base::program::program;

/// How long the answer may take; `busctl` itself gives up a bit sooner.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the answer may be long.
const LONGEST: u64 = 4096;

/// `busctl`'s answer: `{"type":"u","data":1}`.
#[derive(Deserialize)]
struct Answer {
    data: u32,
}

/// Whether NetworkManager says that the connection is metered, or guesses so. Where there is no NetworkManager, no bus, no `busctl`, or
/// no answer in time, it is not.
#[must_use]
pub fn is_metered() -> bool {
    ask(OsStr::new("busctl"), PATIENCE).is_some_and(|answer| says_metered(&answer))
}

fn ask(name: &OsStr, patience: Duration) -> Option<Vec<u8>> {
    use std::io::Read as _;
    const NAME: &str = "org.freedesktop.NetworkManager";
    let mut command = program(name);
    command.args(["--system", "--timeout=2s", "--json=short", "get-property"]);
    command.args([NAME, "/org/freedesktop/NetworkManager", NAME, "Metered"]);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.ok()?;
    let stdout = child.stdout.take();
    // An answer fits into the pipe, so it need not be read while waiting.
    match wait_for(&mut child, patience, &Cancel::new()) {
        Ok(Ended::Exited(status)) if status.success() => {}
        Ok(Ended::Exited(_)) => return None,
        _ => {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
    }
    let mut answer = Vec::new();
    stdout?.take(LONGEST).read_to_end(&mut answer).ok()?;
    Some(answer)
}

/// `NM_METERED_YES` is 1, `NM_METERED_GUESS_YES` 3; unknown, no, and a guessed no are 0, 2 and 4.
fn says_metered(answer: &[u8]) -> bool {
    serde_json::from_slice::<Answer>(answer).is_ok_and(|answer| matches!(answer.data, 1 | 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_the_numbers_mean() {
        for (number, metered) in [(0, false), (1, true), (2, false), (3, true), (4, false), (99, false)] {
            let answer = format!("{{\"type\":\"u\",\"data\":{number}}}\n");
            assert_eq!(says_metered(answer.as_bytes()), metered, "{number}");
        }
        for answer in ["", "u 1", "{\"type\":\"s\",\"data\":\"1\"}"] {
            assert!(!says_metered(answer.as_bytes()), "{answer}");
        }
    }

    #[test]
    fn whoever_does_not_answer_does_not_count() {
        assert_eq!(ask(OsStr::new("/nonexistent/busctl"), PATIENCE), None);
        assert_eq!(ask(OsStr::new("false"), PATIENCE), None);
        let dir = tempfile::tempdir().expect("a directory");
        let slow = dir.path().join("slow");
        std::fs::write(&slow, "#!/bin/sh\nexec sleep 60\n").expect("written");
        std::fs::set_permissions(&slow, PermissionsExt::from_mode(0o755)).expect("executable");
        assert_eq!(ask(slow.as_os_str(), Duration::from_millis(50)), None);
    }
}
