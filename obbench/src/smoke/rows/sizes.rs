//! Trees so large that they take minutes.

use super::{FAR, Figures, count, megabytes, time_of};
use crate::relay::Link;
use crate::smoke::bench::script;
use crate::smoke::{Bench, Figure};
use crate::tool::{self, Action};
use crate::workload::Workload;

/// Files of the largest trees.
const MILLION: u64 = 1_000_000;

pub(super) fn million(bench: &mut Bench) -> Figures {
    let root = bench.tree(&Workload::ManyFiles { files: MILLION, bytes: 10 })?;
    let remote = bench.remote(Some(Link::delayed(FAR)), true)?;
    let place = bench.place(Some(&remote));
    bench.act(Action::Init, &place)?;
    // The second looks again at what was saved within the tick in which it was written.
    for _ in 0..2 {
        bench.act(Action::Backup(&root), &place)?;
    }
    let _before = remote.counts();
    bench.act(Action::Backup(&root), &place)?;
    let unchanged = remote.counts();
    bench.clear(&place);
    // Against find without a line in between, which has no connection to make.
    let place = bench.place(None);
    bench.act(Action::Init, &place)?;
    for _ in 0..2 {
        bench.act(Action::Backup(&root), &place)?;
    }
    let find = "find \"$1\" -printf '%s %T@ %C@ %i %m\\n' >/dev/null";
    let mut most = 0;
    let (find, ours) = bench.in_turn(
        |_| script(find, &[&root]),
        |bench| {
            let measured = bench.act(Action::Backup(&root), &place)?;
            most = most.max(measured.peak_rss_bytes);
            Ok(measured)
        },
    )?;
    bench.clear(&place);
    Ok(vec![
        count("unchanged million, serial waits", unchanged.serial_waits, 4),
        count("unchanged million, requests", unchanged.requests, 16),
        count("unchanged million, bytes sent", unchanged.bytes_up, 4096),
        time_of("unchanged million, time of find", &ours, &find, 1.5),
        Figure::at_most("unchanged million, memory", megabytes(most), 157.0, " MB"),
    ])
}

pub(super) fn huge_directory(bench: &mut Bench) -> Figures {
    let workload = Workload::HugeDirectory { files: MILLION };
    let root = bench.tree(&workload)?;
    let remote = bench.remote(None, true)?;
    let place = bench.place(Some(&remote));
    bench.act(Action::Init, &place)?;
    for _ in 0..2 {
        bench.act(Action::Backup(&root), &place)?;
    }
    bench.edit(&workload)?;
    let _before = remote.counts();
    let measured = bench.act(Action::Backup(&root), &place)?;
    let changed = remote.counts();
    bench.clear(&place);
    let memory = megabytes(measured.peak_rss_bytes);
    Ok(vec![
        count("one file changed in a directory of a million, bytes sent", changed.bytes_up, 200_000),
        Figure::at_most("one file changed in a directory of a million, memory", memory, 200.0, " MB"),
    ])
}

#[cfg(feature = "index")]
pub(super) fn index(bench: &mut Bench) -> Figures {
    // Time that is not compared with anything says nothing on a busy machine: `obbench index` tells it.
    let figures = crate::index::measure(MILLION, bench.scratch())?;
    Ok(figures.into_iter().filter(|figure| !matches!(figure.unit, " ns" | " ms" | " s")).collect())
}

pub(super) fn laptop(bench: &mut Bench) -> Figures {
    let root = bench.tree(&Workload::Laptop { files: bench.options.laptop_files })?;
    let remote = bench.remote(Some(Link::delayed(FAR)), false)?;
    let ours = bench.passing_backup(&root, Some(&remote))?;
    let mut figures = Vec::new();
    if let Some(restic) = tool::find("restic", None) {
        let place = bench.place(Some(&remote));
        bench.act_of(&*restic, Action::Init, &place)?;
        let theirs = bench.act_of(&*restic, Action::Backup(&root), &place)?;
        bench.clear(&place);
        figures.push(time_of("laptop, first backup at 50 ms, time of restic", &ours, &theirs, 0.5));
    }
    Ok(figures)
}
