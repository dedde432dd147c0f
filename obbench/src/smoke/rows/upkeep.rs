//! What keeping a repository costs: forgetting, collecting, checking.

use super::waits::forget_cache;
use super::{FAR, Figures, count, speed_of};
use crate::relay::Link;
use crate::smoke::bench::script;
use crate::smoke::{Bench, SmokeError};
use crate::tool::Action;
use crate::workload::Workload;

/// Generations to forget all but one of.
const GENERATIONS: u32 = 6;

pub(super) fn waits(bench: &mut Bench) -> Figures {
    let workload = Workload::Laptop { files: bench.options.laptop_files };
    let root = bench.tree(&workload)?;
    let remote = bench.remote(Some(Link::delayed(FAR)), true)?;
    let (_, place) = bench.first_backup(&root, Some(&remote))?;
    for _ in 1..GENERATIONS {
        bench.edit(&workload)?;
        bench.act(Action::Backup(&root), &place)?;
    }
    let _before = remote.counts();
    let mut waits = |action| {
        bench.act(action, &place)?;
        Ok::<_, SmokeError>(remote.counts().serial_waits)
    };
    let verify = waits(Action::Verify(&root))?;
    let check = waits(Action::Fsck)?;
    let forget = waits(Action::Forget)?;
    // The first one may have something to collect, which takes a list, a sweep and a segment.
    let first = waits(Action::Collect)?;
    let collect = waits(Action::Collect)?;
    bench.clear(&place);
    Ok(vec![
        count("verify, serial waits", verify, 5),
        count("fsck of the structure, serial waits", check, 8),
        count("forget all but one, serial waits", forget, 5),
        count("forget and gc with nothing to collect, serial waits", forget.saturating_add(collect), 12),
        count("gc, serial waits", first, 16),
    ])
}

pub(super) fn data(bench: &mut Bench) -> Figures {
    let (root, file) = bench.big_file()?;
    let remote = bench.remote(None, false)?;
    let config = remote.ssh_config();
    let (there, back) = (bench.path("there"), bench.path("back"));
    script("echo put \"$1\" \"$2\" | sftp -q -F \"$3\" -b - kitbag-test", &[&file, &there, &config])?;
    let (_, place) = bench.first_backup(&root, Some(&remote))?;
    let get = "rm -f \"$1\"; echo get \"$2\" \"$1\" | sftp -q -F \"$3\" -b - kitbag-test";
    let (get, check) = bench.in_turn(
        |_| script(get, &[&back, &there, &config]),
        |bench| {
            forget_cache(&place)?;
            bench.act(Action::FsckData, &place)
        },
    )?;
    bench.clear(&place);
    for path in [&there, &back] {
        std::fs::remove_file(path).map_err(SmokeError::io(format!("remove {}", path.display())))?;
    }
    Ok(vec![speed_of("fsck --read-data of a big file, SFTP, speed of get", &check, &get, 0.7)])
}
