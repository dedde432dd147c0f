//! Runs a spec.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::measure::{self, Measured};
use crate::meter::{Meter, MeterError};
use crate::relay::{Relay, Traffic};
use crate::result::{self, Machine, Record};
use crate::spec::{Spec, Step, Way};
use crate::sshd::{HOST, Sshd, SshdError, SshdOptions};
use crate::tool::{self, Action, Place, Server, Tool};
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
        let place = Place {
            repository: store.join("repository"),
            cache: directory.path().join("cache"),
            client: "bench".into(),
            server,
        };
        Ok(Self { spec, workload, tree, root, place, remote, edits: 0, restores: 0, directory })
    }

    fn step(&mut self, tool: &dyn Tool, step: Step, constant: &Record) -> Result<Option<Record>, RunError> {
        if matches!(step, Step::RestoreCold | Step::Disaster) {
            drop_directory(&self.place.cache)?;
        }
        if !matches!(step, Step::RestoreOnto) {
            drop_directory(&self.target())?;
            self.restores += 1;
        }
        let before = self.traffic();
        let Some(measured) = self.measure(tool, step)? else { return Ok(None) };
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

    /// Does what the step says; `None` where the program cannot.
    fn measure(&mut self, tool: &dyn Tool, step: Step) -> Result<Option<Measured>, RunError> {
        let (limit, target) = (self.spec.limit(), self.target());
        let action = match step {
            Step::Clients => {
                return Ok(self.clients(tool).map(|all| measure::run(all, limit)).transpose()?);
            }
            Step::Nights => return self.nights(tool),
            Step::Edited => {
                self.edit()?;
                Action::Backup(&self.root)
            }
            Step::Init => Action::Init,
            Step::First | Step::Unchanged | Step::Disaster => Action::Backup(&self.root),
            Step::Generations => Action::Generations,
            Step::Ls => Action::Ls,
            Step::Cat => Action::Cat(&a_file(&self.root)?),
            Step::Restore | Step::RestoreCold | Step::RestoreOnto => Action::Restore(&target),
            Step::Verify => Action::Verify(&self.root),
            Step::Fsck => Action::Fsck,
            Step::Forget => Action::Forget,
            Step::Gc => Action::Collect,
            Step::Mount => Action::Mount(&target),
        };
        let command = tool.command(action, &self.place);
        Ok(command.map(|command| measure::run(command, limit)).transpose()?)
    }

    fn edit(&mut self) -> io::Result<()> {
        self.edits += 1;
        self.workload.edit(&self.root, self.spec.seed, self.edits).map(drop)
    }

    /// Ends with the first night that fails.
    fn nights(&mut self, tool: &dyn Tool) -> Result<Option<Measured>, RunError> {
        let mut sum: Option<Measured> = None;
        for _ in 0..self.spec.nights {
            self.edit()?;
            let Some(command) = tool.command(Action::Backup(&self.root), &self.place) else {
                return Ok(None);
            };
            let night = measure::run(command, self.spec.limit())?;
            let so_far = sum.map_or(night.clone(), |sum| sum.then(night));
            let is_good = so_far.good();
            sum = Some(so_far);
            if !is_good {
                break;
            }
        }
        Ok(sum)
    }

    fn clients(&self, tool: &dyn Tool) -> Option<Command> {
        let one = |number: u64| {
            let client = format!("client-{number}");
            let cache = self.directory.path().join(&client);
            tool.command(Action::Backup(&self.root), &Place { client, cache, ..self.place.clone() })
        };
        let all: Option<Vec<Command>> = (1..=self.spec.clients).map(one).collect();
        Some(tool::together(&all?))
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

/// The first file below a directory.
fn a_file(directory: &Path) -> io::Result<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        match kind.is_dir() {
            true => match a_file(&entry.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found,
            },
            false if kind.is_file() => return Ok(entry.path()),
            false => {}
        }
    }
    Err(io::ErrorKind::NotFound.into())
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
