//! The processes that a child has started: found through `/proc`, stopped, continued, killed.
//!
//! A server puts each session into a process group of its own, so a signal to the child's group does not reach them.
//! They are found in two ways: by descent, and by a mark in their environment, which also finds those whose parent
//! is already gone.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Every living descendant of the process, without itself.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let all = parents();
    let mut found = vec![root];
    let mut seen: HashSet<u32> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for &(pid, ppid) in &all {
            if ppid == parent && seen.insert(pid) {
                found.push(pid);
            }
        }
    }
    found.split_off(1)
}

/// Every process whose environment holds the entry, `NAME=value` in full.
#[must_use]
pub fn marked(entry: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|&byte| byte == 0).any(|one| one == entry.as_bytes()))
    };
    pids().filter(holds).collect()
}

/// Sends a signal; a process that has gone meanwhile is no matter.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Stops the processes that `find` names, again and again until it names no new one, so that none of them can have
/// started another unseen. Returns them.
pub fn stop_all(find: impl Fn() -> Vec<u32>) -> Vec<u32> {
    let mut stopped = Vec::new();
    loop {
        let new: Vec<u32> = find().into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            return stopped;
        }
        for &pid in &new {
            signal(pid, Signal::STOP);
        }
        stopped.extend(new);
    }
}

/// Kills the processes that `find` names and waits, for at most two seconds, until they have gone.
pub fn kill_all(find: impl Fn() -> Vec<u32>) {
    let doomed = stop_all(find);
    for &pid in &doomed {
        signal(pid, Signal::KILL);
    }
    crate::clock::wait_until(Duration::from_secs(2), || doomed.iter().all(|&pid| !is_running(pid)));
}

/// Whether the process exists and is no zombie.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    status(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

fn parents() -> Vec<(u32, u32)> {
    pids().filter_map(|pid| status(pid).map(|(_, parent)| (pid, parent))).collect()
}

/// State and parent, from `/proc/PID/stat`; the name before them may hold anything, so the last bracket counts.
fn status(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn finds_and_kills_grandchildren() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 61; true"])
            .stdout(Stdio::null())
            .spawn()
            .expect("sh starts");
        let root = shell.id();
        assert!(crate::clock::wait_until(Duration::from_secs(5), || descendants(root).len() == 2));
        let children = descendants(root);
        kill_all(|| descendants(root));
        assert!(children.iter().all(|&pid| !is_running(pid)));
        kill_all(|| vec![root]);
        shell.wait().expect("the shell is ours");
    }

    #[test]
    fn finds_by_mark() {
        let mark = format!("OBBENCH_TEST_MARK={}", std::process::id());
        let (name, value) = mark.split_once('=').expect("a pair");
        let mut child = Command::new("sleep").arg("60").env(name, value).spawn().expect("sleep starts");
        assert!(crate::clock::wait_until(Duration::from_secs(5), || marked(&mark) == [child.id()]));
        child.kill().expect("it lives");
        child.wait().expect("it is ours");
    }
}
