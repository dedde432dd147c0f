//! Many small files.

use super::{FAR, Figures, time_of};
use crate::relay::Link;
use crate::smoke::Bench;
use crate::smoke::bench::script;

pub(super) fn local(bench: &mut Bench) -> Figures {
    let root = bench.small_tree()?;
    let (tar, ours) = bench.in_turn(
        |_| script("tar c \"$1\" 2>/dev/null | cat >/dev/null", &[&root]),
        |bench| bench.passing_backup(&root, None),
    )?;
    Ok(vec![time_of("small files, local, time of tar", &ours, &tar, 2.5)])
}

pub(super) fn delay(bench: &mut Bench) -> Figures {
    let root = bench.small_tree()?;
    let near = bench.remote(Some(Link::default()), false)?;
    let far = bench.remote(Some(Link::delayed(FAR)), false)?;
    let (without, with) = bench.in_turn(
        |bench| bench.passing_backup(&root, Some(&near)),
        |bench| bench.passing_backup(&root, Some(&far)),
    )?;
    Ok(vec![time_of("small files, SFTP at 50 ms, time at 0 ms", &with, &without, 1.15)])
}
