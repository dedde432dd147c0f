//! What may follow a backup in the same connection: forgetting by a policy, and collecting garbage.

use std::sync::Arc;

use jiff::tz::TimeZone;

use super::{forget, gc as collecting};
use crate::base::time::{Clock as _, SystemClock};
use crate::cli::Context;
use crate::cli::args::Backup;
use crate::cli::catalog::Whose;
use crate::cli::error::{Exit, Failure};
use crate::cli::human;
use crate::forget::Options;
use crate::gc;
use crate::monitor::Monitor;
use crate::repo::Repository;

/// What is to follow.
pub struct Plan {
    forget: Option<Options>,
    gc: bool,
}

/// What followed, as far as it came.
pub struct After {
    forgot: Option<forget::Done>,
    collected: Option<(gc::Options, gc::Summary)>,
    /// Why it came no further.
    pub failure: Option<Failure>,
}

impl Plan {
    /// As the command line says.
    ///
    /// # Errors
    /// Usage: a text that is no policy.
    pub fn of(args: &Backup) -> Result<Self, Failure> {
        let options = |text: &String| {
            let what = forget::policy("forget", text)?;
            Ok::<_, Failure>(Options { what, allow_empty: false, zone: TimeZone::system() })
        };
        Ok(Self { forget: args.forget.as_ref().map(options).transpose()?, gc: args.gc })
    }

    /// Forgets, and collects. What fails ends it and is kept: the backup itself was made.
    #[must_use]
    pub fn carry_out(&self, context: &Context, repository: &Repository, monitor: &Arc<dyn Monitor>) -> After {
        let mut after = After { forgot: None, collected: None, failure: None };
        let outcome = self.try_all(context, repository, monitor, &mut after);
        after.failure = outcome.err();
        after
    }

    fn try_all(
        &self,
        context: &Context,
        repository: &Repository,
        monitor: &Arc<dyn Monitor>,
        after: &mut After,
    ) -> Result<(), Failure> {
        let but = |option| move |failure: Failure| failure.after(&context.cancel).but_backed_up(option);
        if let Some(options) = &self.forget {
            let whose = Whose::Of(&context.settings.client);
            let now = SystemClock::new().now();
            let forgot = forget::forget(context, repository, whose, options, (now, false));
            after.forgot = Some(forgot.map_err(but("--forget"))?);
        }
        if self.gc {
            let options = gc::Options::new(&context.settings.client);
            let summary = gc::run(repository, &options, monitor, &context.cancel);
            let summary = summary.map_err(|error| but("--gc")(error.into()))?;
            after.collected = Some((options, summary));
        }
        Ok(())
    }
}

impl After {
    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(forgot) = &self.forgot {
            let (forgotten, kept) = forgot.counts();
            lines.extend(forgot.lines(false));
            lines.push(format!(
                "forgot {}, {} kept",
                human::counted(forgotten, "generation", "generations"),
                human::count(kept)
            ));
        }
        if let Some((options, summary)) = &self.collected {
            lines.extend(collecting::lines(options, summary));
        }
        lines
    }

    /// Generations forgotten, and bytes of bags removed, as far as either was asked for.
    #[must_use]
    pub fn counts(&self) -> (Option<u64>, Option<u64>) {
        let forgotten = self.forgot.as_ref().map(|forgot| forgot.counts().0);
        (forgotten, self.collected.as_ref().map(|(_, summary)| summary.removed.bytes))
    }

    /// How a run ends whose backup ended with `exit`.
    #[must_use]
    pub fn exit(&self, exit: Exit) -> Exit {
        let exit = self.forgot.as_ref().map_or(exit, |forgot| super::worse(forgot.seen.exit, exit));
        self.failure.as_ref().map_or(exit, |failure| super::worse(exit, failure.exit))
    }
}
