//! What is seen through a mount.

use std::time::Duration;

use super::waits::{forget_cache, remove};
use super::{FAR, Figures, count, megabytes, speed_of, time_of};
use crate::need;
use crate::relay::Link;
use crate::smoke::bench::script;
use crate::smoke::{Bench, Figure};
use crate::tool::Action;
use crate::workload::Workload;

const FIND: &str = "find \"$1\" -printf '%s %T@\\n' >/dev/null";

pub(super) fn find(bench: &mut Bench) -> Figures {
    if !need::fuse() {
        return Ok(Vec::new());
    }
    let root = bench.small_tree()?;
    let remote = bench.remote(Some(Link::delayed(FAR)), true)?;
    let (_, place) = bench.first_backup(&root, Some(&remote))?;
    let _before = remote.counts();
    let waits = |bench: &Bench| {
        let mounted = bench.mount(&place, "mnt")?;
        // What mounting itself has asked for is counted by then.
        std::thread::sleep(Duration::from_millis(300));
        let before = remote.waits_so_far();
        script(FIND, &[&mounted.path(&root)])?;
        let waits = remote.waits_so_far().saturating_sub(before);
        drop(mounted);
        let _counts = remote.counts();
        Ok::<_, crate::smoke::SmokeError>(waits)
    };
    let warm = waits(bench)?;
    forget_cache(&place)?;
    let cold = waits(bench)?;
    let mut most = 0;
    let (live, seen) = bench.in_turn(
        |_| script(FIND, &[&root]),
        |bench| {
            // Mounted anew, so that the kernel has not seen anything of it.
            let mounted = bench.mount(&place, "mnt")?;
            let measured = script(FIND, &[&mounted.path(&root)])?;
            most = most.max(mounted.memory());
            Ok(measured)
        },
    )?;
    bench.clear(&place);
    Ok(vec![
        count("find over a mount, serial waits", warm, 0),
        count("find over a mount without a cache, serial waits", cold, 8),
        time_of("find over a mount, time of find over the tree", &seen, &live, 6.0),
        Figure::at_most("find over a mount, memory", megabytes(most), 209.0, " MB"),
    ])
}

pub(super) fn copy(bench: &mut Bench) -> Figures {
    if !need::fuse() {
        return Ok(Vec::new());
    }
    let (root, file) = bench.big_file()?;
    let remote = bench.remote(None, false)?;
    let (_, place) = bench.first_backup(&root, Some(&remote))?;
    let (copy, restored) = (bench.path("copy"), bench.path("restored"));
    let (restore, seen) = bench.in_turn(
        |bench| {
            let measured = bench.act(Action::Restore(&restored), &place)?;
            remove(&restored)?;
            Ok(measured)
        },
        |bench| {
            let mounted = bench.mount(&place, "mnt")?;
            let measured = script("cp \"$1\" \"$2\"", &[&mounted.path(&file), &copy])?;
            script("cmp \"$1\" \"$2\" && rm \"$2\"", &[&file, &copy])?;
            Ok(measured)
        },
    )?;
    bench.clear(&place);
    Ok(vec![speed_of("big file out of a mount, SFTP, speed of its restore", &seen, &restore, 0.7)])
}

pub(super) fn huge_directory(bench: &mut Bench) -> Figures {
    if !need::fuse() {
        return Ok(Vec::new());
    }
    let root = bench.tree(&Workload::HugeDirectory { files: 1_000_000 })?;
    let (_, place) = bench.first_backup(&root, None)?;
    let mounted = bench.mount(&place, "mnt")?;
    let listed = script("ls -f \"$1\" | wc -l", &[&mounted.path(&root)])?;
    let memory = mounted.memory();
    drop(mounted);
    bench.clear(&place);
    let entries = listed.stdout.trim().parse::<u64>().unwrap_or(0);
    Ok(vec![
        Figure::at_least("a mounted directory of a million, entries", super::float(entries), 1_000_000.0, ""),
        Figure::at_most("a mounted directory of a million, ls -f", listed.wall_s, 5.0, " s"),
        Figure::at_most("a mounted directory of a million, memory", megabytes(memory), 209.0, " MB"),
    ])
}
