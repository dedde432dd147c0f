//! Runs a spec.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::measure::{self, Measured};
use crate::meter::{Meter, MeterError};
use crate::relay::{Relay, Traffic};
use crate::result::{self, Machine, Record};
use crate::spec::{Spec, Step, Way};
use crate::sshd::{HOST, Sshd, SshdError, SshdOptions};
use crate::tool::{Action, Place, Server, Tool};
use crate::workload::{Size, Workload};
use crate::{clock, interrupt};

/// Why a run stopped. A step that fails is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No server.
    #[error(transparent)]
    Sshd(#[from] SshdError),
    /// No meter.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// Trees and results.
    #[error("the benchmark's own files: {0}")]
    Io(#[from] io::Error),
}

/// Measures everything that the spec says with the tools given, and hands each record to `done` as it comes.
///
/// # Errors
/// See [`RunError`].
pub fn run(
    spec: &Spec,
    tools: &[Box<dyn Tool>],
    scratch: &Path,
    mut done: impl FnMut(Record) -> io::Result<()>,
) -> Result<(), RunError> {
    let constant = Record {
        machine: Machine::this(),
        commit: result::commit(),
        spec: spec.name.clone(),
        ..Record::default()
    };
    for workload in &spec.workloads {
        for way in &spec.links {
            for tool in tools {
                for repeat in 1..=spec.repeats {
                    let mut record = constant.clone();
                    record.workload = workload.name();
                    record.link = way.name().to_string();
                    record.rtt_us = way.link().map_or(0, |link| link.rtt_us);
                    record.tool = tool.name().to_string();
                    record.tool_version = tool.version();
                    record.repeat = repeat;
                    let mut course = Course::prepare(spec, workload, way, scratch)?;
                    record.tree = course.tree;
                    for &step in &spec.steps {
                        if interrupt::requested() {
                            return Ok(());
                        }
                        if let Some(record) = course.step(tool.as_ref(), step, &record)? {
                            done(record)?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// One tool with one tree over one link.
struct Course<'a> {
    spec: &'a Spec,
    workload: &'a Workload,
    tree: Size,
    root: PathBuf,
    place: Place,
    remote: Option<Remote>,
    edits: u64,
    restores: u64,
    directory: TempDir,
}

struct Remote {
    meter: Meter,
    _sshd: Sshd,
    relay: Relay,
}

impl<'a> Course<'a> {
    fn prepare(spec: &'a Spec, workload: &'a Workload, way: &Way, scratch: &Path) -> Result<Self, RunError> {
        let directory = tempfile::Builder::new().prefix("obbench-run-").tempdir_in(scratch)?;
        let root = directory.path().join("tree");
        let tree = workload.create(&root, spec.seed)?;
        let mut server = None;
        let mut remote = None;
        if *way != Way::Local {
            let meter = Meter::start()?;
            let options = SshdOptions { subsystem: meter.subsystem(), ..SshdOptions::default() };
            let mut sshd = Sshd::start(options)?;
            let relay = Relay::start(sshd.address(), way.link().cloned().unwrap_or_default())?;
            sshd.set_client_port(relay.port())?;
            server = Some(Server { host: HOST.into(), ssh_config: sshd.ssh_config() });
            remote = Some(Remote { meter, _sshd: sshd, relay });
        }
        let store = directory.path().join("store");
        fs::create_dir(&store)?;
        let place =
            Place { repository: store.join("repository"), cache: directory.path().join("cache"), server };
        Ok(Self { spec, workload, tree, root, place, remote, edits: 0, restores: 0, directory })
    }

    fn step(&mut self, tool: &dyn Tool, step: Step, constant: &Record) -> Result<Option<Record>, RunError> {
        match step {
            Step::Edited => {
                self.edits += 1;
                self.workload.edit(&self.root, self.spec.seed, self.edits)?;
            }
            Step::RestoreCold | Step::Disaster => drop_directory(&self.place.cache)?,
            _ => {}
        }
        if !matches!(step, Step::RestoreOnto) {
            drop_directory(&self.target())?;
            self.restores += 1;
        }
        let target = self.target();
        let action = match step {
            Step::Init => Action::Init,
            Step::First | Step::Unchanged | Step::Edited | Step::Disaster => Action::Backup(&self.root),
            Step::Generations => Action::Generations,
            Step::Ls => Action::Ls,
            Step::Restore | Step::RestoreCold | Step::RestoreOnto => Action::Restore(&target),
            Step::Verify => Action::Verify(&self.root),
            Step::Fsck => Action::Fsck,
            Step::Forget => Action::Forget,
            Step::Gc => Action::Collect,
        };
        let Some(command) = tool.command(action, &self.place) else {
            return Ok(None);
        };
        let before = self.traffic();
        let measured = measure::run(command, self.spec.limit())?;
        let after = self.traffic();
        let rtt = self.remote.as_ref().map(|remote| remote.relay.link().rtt()).unwrap_or_default();
        let counts = self.remote.as_ref().map(|remote| remote.meter.take(rtt)).filter(|all| all.requests > 0);
        let moved = [after.bytes_up - before.bytes_up, after.bytes_down - before.bytes_down];
        Ok(Some(Record {
            time: clock::unix_seconds(),
            step: step.name().to_string(),
            complaint: complaint(&measured),
            measured,
            counts,
            link_bytes: self.remote.is_some().then_some(moved),
            repository: size(&self.directory.path().join("store"))?,
            ..constant.clone()
        }))
    }

    fn target(&self) -> PathBuf {
        self.directory.path().join(format!("restored-{}", self.restores))
    }

    fn traffic(&self) -> Traffic {
        self.remote.as_ref().map(|remote| remote.relay.traffic()).unwrap_or_default()
    }
}

fn complaint(measured: &Measured) -> Option<String> {
    (!measured.good()).then(|| format!("exit code {}: {}", measured.exit_code, measured.complaint()))
}

fn drop_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Files and bytes below a directory.
fn size(directory: &Path) -> io::Result<Size> {
    let mut size = Size::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            let below = self::size(&entry.path())?;
            size.files += below.files;
            size.bytes += below.bytes;
        } else {
            size.files += 1;
            size.bytes += metadata.len();
        }
    }
    Ok(size)
}
