//! The rows.

use std::time::Duration;

use super::{Bench, Figure, Row, SmokeError};
use crate::relay::Link;
use crate::tool::Action;

type Figures = Result<Vec<Figure>, SmokeError>;

/// The distance at which waits are counted and delays compared.
const FAR: Duration = Duration::from_millis(50);

/// All rows, in the order in which they are measured.
pub const ROWS: [Row; 6] = [
    Row {
        name: "waits",
        about: "requests and waits of init, and of a run that finds nothing new",
        run: waits,
    },
    Row {
        name: "small-local",
        about: "many small files, to a local directory, against tar",
        run: small_local,
    },
    Row {
        name: "big-local",
        about: "a big random file, to a local directory, against cp and sync",
        run: big_local,
    },
    Row { name: "big-sftp", about: "a big random file, over SFTP, against sftp put", run: big_sftp },
    Row {
        name: "small-delay",
        about: "many small files over SFTP, with delay against without",
        run: small_delay,
    },
    Row {
        name: "big-delay",
        about: "a big random file over SFTP at 50 ms, against sftp put",
        run: big_delay,
    },
];

fn waits(bench: &mut Bench) -> Figures {
    let root = bench.small_tree()?;
    let remote = bench.remote(Some(Link::delayed(FAR)), true)?;
    let place = bench.place(Some(&remote));
    bench.act(Action::Init, &place)?;
    let init = remote.counts();
    bench.act(Action::Backup(&root), &place)?;
    let _first = remote.counts();
    // Files saved within the tick in which they were written are looked at once more: that is the second run.
    bench.act(Action::Backup(&root), &place)?;
    let _second = remote.counts();
    bench.act(Action::Backup(&root), &place)?;
    let unchanged = remote.counts();
    bench.clear(&place);
    Ok(vec![
        count("init over SFTP, serial waits", init.serial_waits, 5),
        count("unchanged run, serial waits", unchanged.serial_waits, 4),
        count("unchanged run, requests", unchanged.requests, 16),
        count("unchanged run, bytes sent", unchanged.bytes_up, 4096),
        // A meter that saw nothing must not pass for a client that asked for nothing.
        Figure::at_least("unchanged run, requests seen", float(unchanged.requests), 2.0, ""),
    ])
}

fn small_local(bench: &mut Bench) -> Figures {
    let root = bench.small_tree()?;
    let tar = bench.best_of_script("tar c \"$1\" 2>/dev/null | cat >/dev/null", &[&root])?;
    let ours = bench.best_first_backup(&root, None)?;
    Ok(vec![Figure::at_most("small files, local, time of tar", ours.wall_s / tar.wall_s, 2.5, " ×")])
}

fn big_local(bench: &mut Bench) -> Figures {
    let (root, file) = bench.big_file()?;
    let copy = bench.path("copy");
    let cp = bench
        .best_of_script("rm -f \"$2\"; cp --reflink=never \"$1\" \"$2\" && sync \"$2\"", &[&file, &copy])?;
    let _ = std::fs::remove_file(&copy);
    let ours = bench.best_first_backup(&root, None)?;
    Ok(vec![Figure::at_least("big file, local, speed of cp and sync", cp.wall_s / ours.wall_s, 0.4, " ×")])
}

fn big_sftp(bench: &mut Bench) -> Figures {
    big(bench, None, "big file, SFTP, speed of put", 0.7)
}

fn big_delay(bench: &mut Bench) -> Figures {
    big(bench, Some(Link::delayed(FAR)), "big file, SFTP at 50 ms, speed of put", 2.0)
}

fn big(bench: &mut Bench, link: Option<Link>, name: &str, limit: f64) -> Figures {
    let (root, file) = bench.big_file()?;
    let remote = bench.remote(link, false)?;
    let copy = bench.path("copy");
    let script = "rm -f \"$2\"; echo put \"$1\" \"$2\" | sftp -q -F \"$3\" -b - kitbag-test";
    let put = bench.best_of_script(script, &[&file, &copy, &remote.ssh_config()])?;
    let _ = std::fs::remove_file(&copy);
    let ours = bench.best_first_backup(&root, Some(&remote))?;
    Ok(vec![Figure::at_least(name, put.wall_s / ours.wall_s, limit, " ×")])
}

fn small_delay(bench: &mut Bench) -> Figures {
    let root = bench.small_tree()?;
    let near = bench.remote(Some(Link::default()), false)?;
    let far = bench.remote(Some(Link::delayed(FAR)), false)?;
    let without = bench.best_first_backup(&root, Some(&near))?;
    let with = bench.best_first_backup(&root, Some(&far))?;
    let ratio = with.wall_s / without.wall_s;
    Ok(vec![Figure::at_most("small files, SFTP at 50 ms, time at 0 ms", ratio, 1.3, " ×")])
}

fn count(name: &str, measured: u64, limit: u32) -> Figure {
    Figure::at_most(name, float(measured), f64::from(limit), "")
}

/// Counts here are far below what a float holds exactly.
fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
