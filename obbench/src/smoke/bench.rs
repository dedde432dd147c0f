//! What the rows share: a scratch directory, trees that are made once, servers, and the running of commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::mounted::Mounted;
use super::{Figure, SmokeError};
use crate::measure::{self, Measured};
use crate::meter::{Counts, Meter};
use crate::relay::{Link, Relay};
use crate::sshd::{HOST, Sshd, SshdOptions};
use crate::tool::{Action, Place, Server, Tool};
use crate::workload::Workload;

/// No command here may take longer.
const LIMIT: Duration = Duration::from_secs(1200);
/// What the largest run may keep in memory.
const MOST_MEMORY: f64 = 200.0;
const SEED: u64 = 1;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Files of the tree of small files.
    pub small_files: u64,
    /// Bytes of the big file.
    pub big_bytes: u64,
    /// How often what is compared is run, in turn with what it is compared with.
    pub repeats: u32,
    /// Files of the tree that is restored without a cache.
    pub laptop_files: u64,
    /// Whether rows that take minutes are measured too.
    pub is_full: bool,
}

impl Options {
    /// What fits into three minutes.
    #[must_use]
    pub fn quick() -> Self {
        Self { small_files: 100_000, big_bytes: 512 << 20, repeats: 2, laptop_files: 3000, is_full: false }
    }

    /// The sizes that the promises were made for.
    #[must_use]
    pub fn full() -> Self {
        Self { small_files: 100_000, big_bytes: 2 << 30, repeats: 3, laptop_files: 55_000, is_full: true }
    }
}

/// The workbench.
pub struct Bench {
    /// How much is measured.
    pub options: Options,
    tool: Box<dyn Tool>,
    scratch: TempDir,
    places: u32,
    edits: u64,
    most_memory: u64,
}

/// A server with what is before and behind it.
pub struct Remote {
    link: Link,
    meter: Option<Meter>,
    sshd: Sshd,
    _relay: Option<Relay>,
}

impl Bench {
    /// A bench with a new directory below `scratch`.
    ///
    /// # Errors
    /// When there can be none.
    pub fn new(tool: Box<dyn Tool>, scratch: &Path, options: Options) -> Result<Self, SmokeError> {
        let scratch = tempfile::Builder::new()
            .prefix("obbench-smoke-")
            .tempdir_in(scratch)
            .map_err(SmokeError::io(format!("make a directory in {}", scratch.display())))?;
        Ok(Self { options, tool, scratch, places: 0, edits: 0, most_memory: 0 })
    }

    /// The most memory that any run of the measured program took so far.
    #[must_use]
    pub fn memory(&self) -> Figure {
        let megabytes = self.most_memory / 1_000_000;
        let megabytes = u32::try_from(megabytes).map_or(f64::MAX, f64::from);
        Figure::at_most("memory, the most of all runs", megabytes, MOST_MEMORY, " MB")
    }

    /// Where anything may be made.
    #[cfg(feature = "index")]
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The tree of small files.
    pub(super) fn small_tree(&self) -> Result<PathBuf, SmokeError> {
        self.tree(&self.small_files())
    }

    fn small_files(&self) -> Workload {
        Workload::ManyFiles { files: self.options.small_files, bytes: 10 }
    }

    /// Changes one file of the tree of small files.
    pub(super) fn edit_small_tree(&mut self) -> Result<(), SmokeError> {
        self.edit(&self.small_files())
    }

    /// Does a round of edits to a tree.
    pub(super) fn edit(&mut self, workload: &Workload) -> Result<(), SmokeError> {
        self.edits += 1;
        let root = self.tree(workload)?;
        let failed = SmokeError::io(format!("edit {}", root.display()));
        workload.edit(&root, SEED, self.edits).map(drop).map_err(failed)
    }

    /// A directory with one big file of random bytes, and the file.
    pub(super) fn big_file(&self) -> Result<(PathBuf, PathBuf), SmokeError> {
        let root = self.tree(&Workload::BigFile { bytes: self.options.big_bytes })?;
        let file = root.join("big");
        Ok((root, file))
    }

    /// The tree, made where it is not there yet.
    pub(super) fn tree(&self, workload: &Workload) -> Result<PathBuf, SmokeError> {
        let root = self.path(&workload.name());
        if !root.exists() {
            workload.create(&root, SEED).map_err(SmokeError::io(format!("make {}", root.display())))?;
        }
        Ok(root)
    }

    /// A path in the scratch directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A place for a new repository, with an empty cache.
    pub(super) fn place(&mut self, remote: Option<&Remote>) -> Place {
        self.places += 1;
        let directory = self.path(&format!("place-{}", self.places));
        Place {
            repository: directory.join("repository"),
            cache: directory.join("cache"),
            client: "bench".into(),
            server: remote.map(|remote| Server { host: HOST.into(), ssh_config: remote.sshd.ssh_config() }),
        }
    }

    /// Removes what stands at a place.
    pub(super) fn clear(&self, place: &Place) {
        // What is left is removed with the scratch directory.
        for path in place.repository.parent().into_iter().chain([place.cache.as_path()]) {
            let _ = fs::remove_dir_all(path);
        }
    }

    /// A server behind a link.
    pub(super) fn remote(&self, link: Option<Link>, metered: bool) -> Result<Remote, SmokeError> {
        let meter = metered.then(Meter::start).transpose()?;
        let subsystem = meter.as_ref().map(Meter::subsystem).unwrap_or_default();
        let log_level = Some("ERROR".into());
        let mut sshd = Sshd::start(SshdOptions { subsystem, log_level, ..SshdOptions::default() })?;
        let relay = link.clone().map(|link| Relay::start(sshd.address(), link)).transpose();
        let relay = relay.map_err(SmokeError::io("start a relay"))?;
        if let Some(relay) = &relay {
            sshd.set_client_port(relay.port())?;
        }
        Ok(Remote { link: link.unwrap_or_default(), meter, sshd, _relay: relay })
    }

    /// Lets the measured program do something, which is to succeed.
    pub(super) fn act(&mut self, action: Action<'_>, place: &Place) -> Result<Measured, SmokeError> {
        let measured = self.act_of(&*self.tool, action, place)?;
        self.most_memory = self.most_memory.max(measured.peak_rss_bytes);
        Ok(measured)
    }

    /// Shows what is at a place in the directory `name`.
    pub(super) fn mount(&self, place: &Place, name: &str) -> Result<Mounted, SmokeError> {
        let at = self.path(name);
        fs::create_dir_all(&at).map_err(SmokeError::io("make a directory to mount on"))?;
        let command = self.tool.command(Action::Show(&at), place);
        Mounted::start(command.ok_or(SmokeError::Unable(self.tool.name()))?, at)
    }

    /// Lets a program do something, which is to succeed.
    pub(super) fn act_of(
        &self,
        tool: &dyn Tool,
        action: Action<'_>,
        place: &Place,
    ) -> Result<Measured, SmokeError> {
        if let Some(directory) = place.repository.parent() {
            fs::create_dir_all(directory).map_err(SmokeError::io("make a place for a repository"))?;
        }
        run(tool.command(action, place).ok_or(SmokeError::Unable(tool.name()))?)
    }

    /// The first backup of a tree into a new repository, made beforehand.
    pub(super) fn first_backup(
        &mut self,
        root: &Path,
        remote: Option<&Remote>,
    ) -> Result<(Measured, Place), SmokeError> {
        let place = self.place(remote);
        self.act(Action::Init, &place)?;
        Ok((self.act(Action::Backup(root), &place)?, place))
    }

    /// The same, and nothing is left of it.
    pub(super) fn passing_backup(
        &mut self,
        root: &Path,
        remote: Option<&Remote>,
    ) -> Result<Measured, SmokeError> {
        let (measured, place) = self.first_backup(root, remote)?;
        self.clear(&place);
        Ok(measured)
    }

    /// Measures two things in turn, each several times, so that what else the machine does meets both; the best of each.
    pub(super) fn in_turn(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<Measured, SmokeError>,
        mut other: impl FnMut(&mut Self) -> Result<Measured, SmokeError>,
    ) -> Result<(Measured, Measured), SmokeError> {
        let (mut ones, mut others) = (Vec::new(), Vec::new());
        for _ in 0..self.options.repeats {
            ones.push(one(self)?);
            others.push(other(self)?);
        }
        Ok((fastest(ones), fastest(others)))
    }
}

/// Runs a shell's script, in which `$1` and so on are the paths.
pub(super) fn script(script: &str, paths: &[&Path]) -> Result<Measured, SmokeError> {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(paths);
    run(command)
}

impl Remote {
    /// The client configuration.
    pub(super) fn ssh_config(&self) -> PathBuf {
        self.sshd.ssh_config()
    }

    /// Serial waits of a client that has not ended.
    pub(super) fn waits_so_far(&self) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.peek(self.link.rtt()).serial_waits)
    }

    /// What the client that has just ended asked for; nothing without a meter.
    pub(super) fn counts(&self) -> Counts {
        self.meter.as_ref().map(|meter| meter.take(self.link.rtt())).unwrap_or_default()
    }
}

/// The one that took the least time.
pub(super) fn fastest(runs: Vec<Measured>) -> Measured {
    runs.into_iter().min_by(|a, b| a.wall_s.total_cmp(&b.wall_s)).unwrap_or_default()
}

fn run(command: Command) -> Result<Measured, SmokeError> {
    let what = command.get_program().to_string_lossy().into_owned();
    let measured = measure::run(command, LIMIT).map_err(SmokeError::io(format!("run {what}")))?;
    if measured.good() {
        return Ok(measured);
    }
    Err(SmokeError::Failed { what, code: measured.exit_code, complaint: measured.complaint() })
}
