//! All that happens around a backup, in its order.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::battery::{self, POWER_SUPPLIES};
use super::hook::{Hook, HookError, Name};
use super::inhibit::Awake;
use super::metered;
use super::metrics::{self, Figures, Run};
use super::turn::{Asked, Turn, Turns};
use crate::base::cancel::Cancel;
use crate::base::text::{escape, system};
use crate::base::time::{Clock as _, SystemClock};
use crate::cli::Context;
use crate::cli::args::Nightly;
use crate::cli::error::{Exit, Failure};
use crate::cli::human;
use crate::cli::log::Level;
use crate::cli::output::Output;
use crate::cli::settings::Verbosity;

/// How long a hook may take, unless said otherwise.
const HOOK_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// What is going to be backed up; the standard input of `--before`.
#[derive(Debug, Serialize)]
pub struct Planned {
    /// `before`
    pub hook: &'static str,
    /// The client's name.
    pub client: String,
    /// Where the repository is, in its one spelling.
    pub repository: String,
    /// The roots, escaped.
    pub roots: Vec<String>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// What came of a backup that made a generation, or had nothing to do.
#[derive(Debug)]
pub struct Made {
    /// What `--json` says of it.
    pub report: Value,
    /// For [`metrics`].
    pub figures: Figures,
    /// How the run ends.
    pub exit: Exit,
    /// What failed after the backup itself.
    pub failure: Option<Failure>,
}

/// The standard input of `--on-failure`.
#[derive(Debug, Serialize)]
struct Failed<'a> {
    hook: &'static str,
    client: &'a str,
    repository: &'a str,
    exit: u8,
    error: String,
    result: Option<&'a Value>,
}

/// Why nothing was done, which is no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    Battery,
    Metered,
    Running(Option<u32>),
}

#[derive(Serialize)]
struct SkipReport {
    skipped: &'static str,
}

/// `--hook-timeout`
///
/// # Errors
/// Usage: it is no time, or none at all.
pub fn hook_timeout(text: &str) -> Result<Duration, Failure> {
    human::parse_time(text).filter(|time| !time.is_zero()).ok_or_else(|| {
        Failure::usage(format!("--hook-timeout {text:?} is no time that makes sense"))
            .about("hook-timeout")
            .hint("write it as in 90s, 15m or 8h")
    })
}

/// What surrounds a backup, decided.
#[derive(Debug)]
pub struct Night<'a> {
    context: &'a Context,
    args: &'a Nightly,
    timeout: Duration,
    planned: Planned,
}

impl<'a> Night<'a> {
    /// Decides.
    ///
    /// # Errors
    /// Usage: a value that cannot be meant.
    pub fn of(context: &'a Context, args: &'a Nightly, planned: Planned) -> Result<Self, Failure> {
        let timeout = args.hook_timeout.as_deref().map_or(Ok(HOOK_TIMEOUT), hook_timeout)?;
        Ok(Self { context, args, timeout, planned })
    }

    /// Runs `backup` when it is time for it, with all that belongs around it. What `prepare` finds wrong is a failure of the run, too, and found before
    /// any hook has done anything.
    ///
    /// # Errors
    /// Why there is no generation, or what failed after it was made.
    pub fn around<T>(
        &self,
        prepare: impl FnOnce() -> Result<T, Failure>,
        backup: impl FnOnce(T) -> Result<Made, Failure>,
    ) -> Result<Exit, Failure> {
        if let Some(why) = self.skipped() {
            return self.skip(why);
        }
        let _turn = match self.turn()? {
            Ok(turn) => turn,
            Err(why) => return self.skip(why),
        };
        let _awake = (!self.planned.dry_run).then(Awake::keep);
        let clock = SystemClock::new();
        let made = prepare().and_then(|prepared| self.before().and_then(|()| backup(prepared)));
        let (made, outcome) = match made {
            Ok(mut made) => {
                let outcome = made.failure.take().map_or(Ok(made.exit), Err);
                (Some(made), outcome)
            }
            Err(failure) => (None, Err(failure)),
        };
        // Hooks and metrics are told what the process will end with.
        let outcome = outcome.map_err(|failure| failure.after(&self.context.cancel));
        let outcome = self.follow_up(outcome, made.as_ref().map(|made| &made.report));
        match self.args.metrics.as_deref().filter(|_| !self.planned.dry_run) {
            Some(path) => self.leave_metrics(path, outcome, made.map(|made| made.figures), clock),
            None => outcome,
        }
    }

    fn skipped(&self) -> Option<Skip> {
        if self.args.skip_on_battery && battery::is_discharging(Path::new(POWER_SUPPLIES)) {
            return Some(Skip::Battery);
        }
        (self.args.skip_on_metered && metered::is_metered()).then_some(Skip::Metered)
    }

    /// The turn of this backup, waited for where that was asked for. A dry run needs none.
    fn turn(&self) -> Result<Result<Option<Turn>, Skip>, Failure> {
        if self.planned.dry_run {
            return Ok(Ok(None));
        }
        let turns = Turns::new(self.context.settings.turns.iter().cloned());
        let Planned { client, repository, roots, .. } = &self.planned;
        // In whatever order, and however often, they were named.
        let roots: BTreeSet<_> = roots.iter().map(String::as_str).collect();
        let backup: Vec<_> = [repository.as_str(), client.as_str()].into_iter().chain(roots).collect();
        match turns.ask(&backup) {
            Asked::Ours(turn) => Ok(Ok(Some(turn))),
            Asked::Taken(holder) if !self.args.wait => Ok(Err(Skip::Running(holder))),
            Asked::Taken(holder) => {
                self.context.screen.say(&format!("kitbag: {}: waiting for its end", self.going(holder)));
                let turn = turns.wait(&backup, &self.context.cancel);
                turn.map(|turn| Ok(Some(turn))).ok_or_else(Failure::interrupted)
            }
        }
    }

    /// Who is at it already, as a sentence.
    fn going(&self, holder: Option<u32>) -> String {
        let who = holder.map(|id| format!(" (process {id})")).unwrap_or_default();
        let Planned { client, repository, .. } = &self.planned;
        format!("another run{who} is making this backup of {client} to {repository}")
    }

    fn skip(&self, why: Skip) -> Result<Exit, Failure> {
        let (word, sentence) = match why {
            Skip::Battery => ("battery", "this machine runs on battery (--skip-on-battery)".to_owned()),
            Skip::Metered => ("metered", "the connection is metered (--skip-on-metered)".to_owned()),
            Skip::Running(holder) => ("running", format!("{} (--wait waits for it)", self.going(holder))),
        };
        let mut output = Output::new();
        let said = format!("nothing was done: {sentence}");
        self.context.screen.log(Level::Info, &said);
        if self.context.settings.json {
            output.json(&SkipReport { skipped: word })?;
        } else if self.context.settings.verbosity > Verbosity::Quiet {
            output.line(&said)?;
        }
        output.finish()?;
        Ok(Exit::Done)
    }

    fn hook(&self, name: Name) -> Option<Hook<'_>> {
        let command = match name {
            Name::Before => self.args.before.as_deref(),
            Name::After => self.args.after.as_deref(),
            Name::OnFailure => self.args.on_failure.as_deref(),
        };
        command.map(|command| Hook { name, command, timeout: self.timeout })
    }

    fn before(&self) -> Result<(), Failure> {
        let Some(hook) = self.hook(Name::Before) else { return Ok(()) };
        if self.context.cancel.is_cancelled() {
            return Err(Failure::interrupted());
        }
        match hook.run(&self.planned, &self.context.cancel) {
            Ok(()) => Ok(()),
            Err(HookError::Interrupted(_)) => Err(Failure::interrupted()),
            Err(error) => Err(Failure::failed(format!("nothing was backed up: {error}"))),
        }
    }

    /// Runs the hook that fits the outcome, and gives the outcome with that of the hook.
    fn follow_up(&self, outcome: Result<Exit, Failure>, report: Option<&Value>) -> Result<Exit, Failure> {
        if let (Ok(Exit::Done | Exit::Incomplete), Some(report)) = (&outcome, report) {
            let Some(hook) = self.hook(Name::After) else { return outcome };
            // Whoever asked to stop too late for the backup has not asked this to stop: the backup was made, and that is what it waits for.
            let late = Cancel::new();
            let cancel = if self.context.cancel.is_cancelled() { &late } else { &self.context.cancel };
            return match hook.run(report, cancel) {
                Ok(()) => outcome,
                Err(HookError::Interrupted(_)) => Err(Failure::interrupted()),
                Err(error) => {
                    self.context.screen.say(&format!("kitbag: the backup was made, but {error}"));
                    Ok(Exit::Incomplete)
                }
            };
        }
        let Some(hook) = self.hook(Name::OnFailure) else { return outcome };
        let (exit, error) = match &outcome {
            Ok(exit) => (exit.code(), "the repository is damaged".to_owned()),
            Err(failure) if failure.is_quiet() => {
                (failure.exit.code(), "nobody reads standard output any more".to_owned())
            }
            Err(failure) => (failure.exit.code(), failure.to_string()),
        };
        let Planned { client, repository, .. } = &self.planned;
        let failed = Failed { hook: "on-failure", client, repository, exit, error, result: report };
        // Whoever has interrupted the backup has not interrupted this.
        if let Err(error) = hook.run(&failed, &Cancel::new()) {
            self.context.screen.say(&format!("kitbag: {error}"));
        }
        outcome
    }

    fn leave_metrics(
        &self,
        path: &Path,
        outcome: Result<Exit, Failure>,
        figures: Option<Figures>,
        clock: SystemClock,
    ) -> Result<Exit, Failure> {
        let run = Run {
            client: &self.planned.client,
            repository: &self.planned.repository,
            ended: clock.now(),
            seconds: clock.monotonic().as_secs_f64(),
            exit: outcome.as_ref().map_or_else(|failure| failure.exit, |exit| *exit),
            figures,
        };
        match metrics::write(path, &run) {
            Ok(()) => outcome,
            Err(error) => {
                self.context.screen.say(&format!(
                    "kitbag: cannot write the metrics to {}: {}; --metrics names a file in a directory that is there and yours",
                    escape(path.as_os_str().as_encoded_bytes()),
                    system(&error)
                ));
                outcome.map(|exit| super::super::commands::worse(exit, Exit::Incomplete))
            }
        }
    }
}
