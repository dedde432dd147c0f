//! A big file of random bytes, there and back.

use super::waits::{forget_cache, remove};
use super::{FAR, Figures, VERY_FAR, megabytes, speed_of};
use crate::measure::Measured;
use crate::relay::{Link, Trouble};
use crate::smoke::bench::script;
use crate::smoke::{Bench, Figure, SmokeError};
use crate::tool::Action;
use crate::workload::Workload;

pub(super) fn local(bench: &mut Bench) -> Figures {
    let (root, file) = bench.big_file()?;
    let copy = bench.path("copy");
    let cp = "rm -f \"$2\"; cp --reflink=never \"$1\" \"$2\" && sync \"$2\"";
    let (cp, ours) =
        bench.in_turn(|_| script(cp, &[&file, &copy]), |bench| bench.passing_backup(&root, None))?;
    drop_file(&copy)?;
    Ok(vec![speed_of("big file, local, speed of cp and sync", &ours, &cp, 0.4)])
}

pub(super) fn direct(bench: &mut Bench) -> Figures {
    there_and_back(bench, None, "SFTP", [0.75, 0.9])
}

pub(super) fn far(bench: &mut Bench) -> Figures {
    there_and_back(bench, Some(Link::delayed(FAR)), "SFTP at 50 ms", [2.0, 2.0])
}

pub(super) fn very_far(bench: &mut Bench) -> Figures {
    there_and_back(bench, Some(Link::delayed(VERY_FAR)), "SFTP at 200 ms", [4.0, 4.0])
}

fn there_and_back(bench: &mut Bench, link: Option<Link>, how: &str, limits: [f64; 2]) -> Figures {
    let (root, file) = bench.big_file()?;
    let remote = bench.remote(link, false)?;
    let config = remote.ssh_config();
    let (there, back, restored) = (bench.path("there"), bench.path("back"), bench.path("restored"));
    let put = "rm -f \"$2\"; echo put \"$1\" \"$2\" | sftp -q -F \"$3\" -b - kitbag-test";
    let get = "rm -f \"$1\"; echo get \"$2\" \"$1\" | sftp -q -F \"$3\" -b - kitbag-test";
    let (mut kept, mut most) = (None, 0);
    let (put, backup) = bench.in_turn(
        |_| script(put, &[&file, &there, &config]),
        |bench| {
            let (measured, place) = bench.first_backup(&root, Some(&remote))?;
            most = most.max(measured.peak_rss_bytes);
            if let Some(before) = kept.replace(place) {
                bench.clear(&before);
            }
            Ok(measured)
        },
    )?;
    let place = kept.ok_or(SmokeError::Unable("nothing"))?;
    let (get, restore) = bench.in_turn(
        |_| script(get, &[&back, &there, &config]),
        |bench| {
            forget_cache(&place)?;
            let measured = bench.act(Action::Restore(&restored), &place)?;
            most = most.max(measured.peak_rss_bytes);
            remove(&restored)?;
            Ok(measured)
        },
    )?;
    bench.clear(&place);
    drop_file(&there)?;
    drop_file(&back)?;
    let [up, down] = limits;
    Ok(vec![
        speed_of(&format!("big file, {how}, speed of put"), &backup, &put, up),
        speed_of(&format!("big file, {how}, restore, speed of get"), &restore, &get, down),
        Figure::at_most(format!("big file, {how}, memory"), megabytes(most), 262.0, " MB"),
    ])
}

/// Bytes that take about a minute at 5 Mbit/s, and those that do at 50.
const BYTES: [u64; 2] = [40_000_000, 400_000_000];

pub(super) fn line(bench: &mut Bench) -> Figures {
    let [slow, fast] = BYTES.map(|bytes| Workload::BigFile { bytes });
    let link = Link::delayed(FAR).with_mbit_per_second(5, 50);
    let remote = bench.remote(Some(link), false)?;
    let root = bench.tree(&slow)?;
    let up = bench.passing_backup(&root, Some(&remote))?;
    let near = bench.remote(None, false)?;
    let root = bench.tree(&fast)?;
    let (_, mut place) = bench.first_backup(&root, Some(&near))?;
    forget_cache(&place)?;
    place.server = bench.place(Some(&remote)).server;
    let restored = bench.path("restored");
    let down = bench.act(Action::Restore(&restored), &place)?;
    remove(&restored)?;
    bench.clear(&place);
    let share = |name: &str, bytes: u64, rate: f64, measured: &Measured| {
        let least = megabytes(bytes) * 8.0 / rate;
        Figure::at_least(name, least / measured.wall_s, 0.93, " ×").of(format!("{:.1} s", measured.wall_s))
    };
    let [slow, fast] = BYTES;
    Ok(vec![
        share("first backup over 5 Mbit/s, share of the line's rate", slow, 5.0, &up),
        share("restore over 50 Mbit/s, share of the line's rate", fast, 50.0, &down),
    ])
}

/// Milliseconds between two cuts.
const CUTS: u64 = 30_000;

/// Megabytes that take about two minutes: four cuts.
const DROPPED: u64 = 80_000_000;

pub(super) fn drops(bench: &mut Bench) -> Figures {
    let trouble = Trouble { cut_every_ms: CUTS, ..Trouble::default() };
    let link = Link { trouble, ..Link::delayed(FAR).with_mbit_per_second(5, 50) };
    let remote = bench.remote(Some(link), false)?;
    let root = bench.tree(&Workload::BigFile { bytes: DROPPED })?;
    let measured = bench.passing_backup(&root, Some(&remote))?;
    let least = megabytes(DROPPED) * 8.0 / 5.0;
    let name = "first backup over 5 Mbit/s that drops every 30 s, share of the line's rate";
    Ok(vec![
        Figure::at_least(name, least / measured.wall_s, 0.8, " ×").of(format!("{:.1} s", measured.wall_s)),
    ])
}

fn drop_file(path: &std::path::Path) -> Result<(), SmokeError> {
    std::fs::remove_file(path).map_err(SmokeError::io(format!("remove {}", path.display())))
}
