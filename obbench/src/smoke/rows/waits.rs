//! How often a run waits for its server, and what it asks.

use super::{FAR, Figures, count, float};
use crate::measure::Measured;
use crate::relay::Link;
use crate::smoke::bench::fastest;
use crate::smoke::{Bench, Figure, SmokeError};
use crate::tool::{Action, Place};
use crate::workload::Workload;

/// Waits of a bag's own: its opening, its bytes, its renaming.
const OF_DATA: u32 = 3;

pub(super) fn runs(bench: &mut Bench) -> Figures {
    let root = bench.small_tree()?;
    let remote = bench.remote(Some(Link::delayed(FAR)), true)?;
    let place = bench.place(Some(&remote));
    bench.act(Action::Init, &place)?;
    let init = remote.counts();
    let backup = |bench: &mut Bench| {
        let measured = bench.act(Action::Backup(&root), &place)?;
        Ok::<_, SmokeError>((measured, remote.counts()))
    };
    backup(bench)?;
    // Files saved within the tick in which they were written are looked at once more: that is the second run.
    backup(bench)?;
    let mut runs = Vec::new();
    let mut unchanged = remote.counts();
    for _ in 0..bench.options.repeats {
        let (measured, counts) = backup(bench)?;
        runs.push(measured);
        unchanged = counts;
    }
    bench.edit_small_tree()?;
    let (_, changed) = backup(bench)?;
    backup(bench)?;
    forget_cache(&place)?;
    let (without_cache, cold) = backup(bench)?;
    let look = |bench: &mut Bench, action: Action<'_>| {
        bench.act(action, &place)?;
        Ok::<_, SmokeError>(remote.counts())
    };
    let warm_list = look(bench, Action::Generations)?;
    forget_cache(&place)?;
    let cold_list = look(bench, Action::Generations)?;
    forget_cache(&place)?;
    let cat = look(bench, Action::Cat(&root.join("00000/0000000")))?;
    bench.clear(&place);
    let wall = fastest(runs).wall_s;
    Ok(vec![
        count("init over SFTP, serial waits", init.serial_waits, 5),
        count("unchanged run, serial waits", unchanged.serial_waits, 4),
        count("unchanged run, requests", unchanged.requests, 16),
        count("unchanged run, bytes sent", unchanged.bytes_up, 4096),
        // A meter that saw nothing must not pass for a client that asked for nothing.
        Figure::at_least("unchanged run, requests seen", float(unchanged.requests), 2.0, ""),
        Figure::at_most("unchanged run at 50 ms", wall, 13.0 * FAR.as_secs_f64() + 0.6, " s"),
        count("changed run, serial waits, those of its bag included", changed.serial_waits, 5 + OF_DATA),
        count("unchanged run without a cache, serial waits", cold.serial_waits, 8),
        Figure::at_most("unchanged run without a cache, files read", files_read(&without_cache), 0.0, ""),
        count("generations, serial waits", warm_list.serial_waits, 4),
        count("generations without a cache, serial waits", cold_list.serial_waits, 4),
        count("one file without a cache, serial waits", cat.serial_waits, 8),
    ])
}

pub(super) fn restore(bench: &mut Bench) -> Figures {
    let root = bench.tree(&Workload::Laptop { files: bench.options.laptop_files })?;
    let remote = bench.remote(Some(Link::delayed(FAR)), true)?;
    let (_, place) = bench.first_backup(&root, Some(&remote))?;
    forget_cache(&place)?;
    let _before = remote.counts();
    let to = bench.path("restored");
    bench.act(Action::Restore(&to), &place)?;
    let counts = remote.counts();
    remove(&to)?;
    bench.clear(&place);
    Ok(vec![count("restore without a cache, serial waits", counts.serial_waits, 12)])
}

/// Makes the client a new machine.
pub(super) fn forget_cache(place: &Place) -> Result<(), SmokeError> {
    remove(&place.cache)
}

/// Removes a tree.
pub(super) fn remove(path: &std::path::Path) -> Result<(), SmokeError> {
    std::fs::remove_dir_all(path).map_err(SmokeError::io(format!("remove {}", path.display())))
}

/// What the program itself says it has read; no number where it does not say.
fn files_read(measured: &Measured) -> f64 {
    let report: Option<serde_json::Value> = serde_json::from_str(&measured.stdout).ok();
    report.and_then(|report| report.get("files_read")?.as_u64()).map_or(f64::NAN, float)
}
