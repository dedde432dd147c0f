//! The command line: the only place that prints, reads the environment or knows a flag.
//!
//! Three stages: [`config`] adds what files and the [`environment`] say to what was typed, [`args`] is all of it, [`settings`] is what it means. A command (one
//! file each in `commands`) is given the settings, runs one operation, and says what came of it: results on standard
//! output ([`output`]), everything else on standard error ([`progress`]). Whatever goes wrong becomes one sentence and an
//! exit code in [`error`]; of a line that makes no sense clap says why, and [`advice`] what else.

pub mod advice;
pub mod args;
pub mod ask;
pub mod catalog;
pub mod commands;
pub mod config;
pub mod connect;
pub mod daemon;
pub mod environment;
pub mod error;
pub mod events;
pub mod human;
pub mod key_file;
pub mod lines;
pub mod listing;
pub mod log;
pub mod man;
pub mod nearest;
pub mod nightly;
pub mod output;
pub mod passphrase;
pub mod progress;
pub mod rate;
pub mod report;
pub mod screen;
pub mod select;
pub mod settings;
pub mod signals;
pub mod ssh;
pub mod syslog;
pub mod together;
pub mod tracing;
pub mod values;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory as _, Parser as _};

use crate::base::cancel::Cancel;
use crate::crypto::Secret;
use crate::live::raise_open_file_limit;
use args::{Args, Command};
use commands::last_backup_age;
use config::Configured;
use config::definition::Definition;
use environment::Environment;
use error::{Exit, Failure};
use log::{Level, LogFile};
use screen::{Look, Screen};
use settings::{Settings, Verbosity};
use signals::Reach;

/// Runs the program with the arguments and the environment of the process, and gives its exit code.
#[must_use]
pub fn run() -> ExitCode {
    signals::outlive_large_files();
    let definition = Definition::new(Args::command());
    let typed = match definition.typed(std::env::args_os().collect()) {
        Ok(typed) => typed,
        Err(error) => return explain(error, &[], false),
    };
    if typed.stands_alone() {
        return match Args::try_parse_from(&typed.words) {
            Ok(args) => end(alone(&args.command)),
            Err(error) => explain(error, &typed.command, false),
        };
    }
    // A monitor that asks is told in its own way.
    let is_plugin = last_backup_age::is_meant(&typed);
    let environment = Environment::of_process();
    let configured = match Configured::read(definition, typed, &environment) {
        Ok(configured) => configured,
        Err(failure) => return refuse(failure, is_plugin),
    };
    let args = match parse(&configured) {
        Ok(Ok(args)) => args,
        Ok(Err(error)) => return explain(error, &configured.typed.command, is_plugin),
        Err(failure) => return refuse(failure, is_plugin),
    };
    let decided = Settings::decide(args.common, environment);
    let settings = match decided.and_then(|settings| settings.fit(&args.command)) {
        Ok(settings) => settings,
        Err(failure) => return refuse(configured.locate(failure), is_plugin),
    };
    let screen = match screen(&settings) {
        Ok(screen) => screen,
        Err(failure) => return refuse(configured.locate(failure), is_plugin),
    };
    let context = Context {
        configured,
        screen,
        cancel: Cancel::new(),
        settings,
        said_of_cache: AtomicBool::new(false),
        given: Mutex::default(),
        reach: Reach::default(),
    };
    raise_open_file_limit();
    tracing::start(context.settings.verbosity, &context.screen);
    signals::listen(context.cancel.clone(), context.reach.clone(), context.screen.clone());
    let outcome = context.run(args.command);
    context.end(outcome.map_err(|failure| context.configured.locate(failure).after(&context.cancel)))
}

/// Standard error, as the settings want it, with its log file.
fn screen(settings: &Settings) -> Result<Screen, Failure> {
    let open = |(path, level): &(PathBuf, Level)| LogFile::open(path, *level);
    Ok(Screen::with(Look {
        verbosity: settings.verbosity,
        progress: settings.progress,
        in_journal: settings.in_journal,
        log: settings.log.as_ref().map(open).transpose()?,
    }))
}

/// The command line, with what was written elsewhere. Where that is refused as it was typed, too, it is explained as it was typed.
fn parse(configured: &Configured) -> Result<Result<Args, clap::Error>, Failure> {
    let parsed = Args::try_parse_from(configured.words()?);
    Ok(parsed.map_err(|error| match Args::try_parse_from(&configured.typed.words) {
        Err(plain) if plain.kind() == error.kind() => plain,
        _ => error,
    }))
}

/// A command that goes by its own line alone, if it is one.
fn alone(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Serve(args) => commands::serve::run(args),
        Command::Completions { shell } => commands::man::completions(*shell),
        Command::Man { dir } => commands::man::pages(dir),
        _ => Ok(Exit::Done),
    }
}

/// Help and version, too, come as errors: on standard output, with exit code 0.
fn explain(mut error: clap::Error, command: &[String], is_plugin: bool) -> ExitCode {
    advice::advise(&mut error, command);
    let _ = error.print();
    match error.use_stderr() {
        false => Exit::Done.into(),
        true if is_plugin => last_backup_age::unknown(&error.to_string(), false).into(),
        true => Exit::Usage.into(),
    }
}

/// Ends before a command has begun.
fn refuse(failure: Failure, is_plugin: bool) -> ExitCode {
    match is_plugin {
        true => last_backup_age::unknown(&failure.to_string(), false).into(),
        false => end(Err(failure)),
    }
}

/// What every command is given.
#[derive(Debug)]
pub struct Context {
    /// Where it was written.
    pub configured: Configured,
    /// What was decided.
    pub settings: Settings,
    /// Standard error.
    pub screen: Screen,
    /// Set by Ctrl-C.
    pub cancel: Cancel,
    /// Whether it was told already that the cache cannot be used.
    said_of_cache: AtomicBool,
    /// What a person or a file gave last to open the repository, for opening it once more: some can be asked only once.
    given: Mutex<Option<Secret>>,
    /// The store that is in use, for whoever does not want to wait for it.
    reach: Reach,
}

impl Context {
    /// The current directory.
    ///
    /// # Errors
    /// When it is gone.
    pub fn here(&self) -> Result<PathBuf, Failure> {
        std::env::current_dir()
            .map_err(|error| Failure::failed(format!("cannot tell the current directory: {error}")))
    }

    /// Says to a person at a terminal why a list is empty; programs see that, and who reads their mail would be bothered.
    pub fn say_why_empty(&self, why: &str) {
        if io::stderr().is_terminal() && self.settings.verbosity > Verbosity::Quiet {
            self.screen.say(&format!("kitbag: {why}"));
        }
    }

    /// Says the last word, and gives the exit code.
    fn end(&self, outcome: Result<Exit, Failure>) -> ExitCode {
        let exit = outcome.unwrap_or_else(|failure| {
            if !failure.is_quiet() {
                self.screen.tell(Level::Error, &format!("kitbag: {failure}"));
            }
            failure.exit
        });
        self.screen.log(Level::Info, &format!("ended with exit code {}", exit.code()));
        exit.into()
    }

    fn run(&self, command: Command) -> Result<Exit, Failure> {
        let (version, name) = (env!("CARGO_PKG_VERSION"), self.configured.typed.command.join(" "));
        self.screen.log(Level::Info, &format!("kitbag {version} begins: {name}"));
        match command {
            Command::Init(args) => commands::init::run(self, &args),
            Command::Generations => commands::generations::run(self),
            Command::Clients => commands::clients::run(self),
            Command::Backup(args) => commands::backup::run(self, &args),
            Command::Ls(args) => commands::ls::run(self, &args),
            Command::Cat(args) => commands::cat::run(self, &args),
            Command::Find(args) => commands::find::run(self, &args),
            Command::Diff(args) => commands::diff::run(self, &args),
            Command::Export(args) => commands::export::run(self, &args),
            Command::Mount(args) => commands::mount::run(self, &args),
            Command::Fsck(args) => commands::fsck::run(self, &args),
            Command::Verify(args) => commands::verify::run(self, &args),
            Command::Gc(args) => commands::gc::run(self, &args),
            Command::Restore(args) => commands::restore::run(self, &args),
            Command::Cache(what) => commands::cache::run(self, &what),
            Command::Config(what) => commands::config::run(self, &what),
            Command::LastBackupAge(args) => Ok(last_backup_age::run(self, &args)),
            Command::Forget(args) => commands::forget::run(self, &args),
            Command::Key(what) => commands::key::run(self, &what),
            Command::Tag(what) => commands::tag::run(self, &what),
            Command::Sessions { what } => commands::sessions::run(self, what.as_ref()),
            Command::RemoveClient(args) => commands::remove_client::run(self, &args),
            Command::Serve(_) | Command::Completions { .. } | Command::Man { .. } => alone(&command),
        }
    }
}

#[expect(clippy::print_stderr, reason = "the last word of one that did not begin")]
fn end(outcome: Result<Exit, Failure>) -> ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.is_quiet() {
                eprintln!("kitbag: {failure}");
            }
            failure.exit.into()
        }
    }
}
