//! Bags that are emptied into others, and who reads what was in them.

use kitbag::gc::{Amount, Limits, Options};

use crate::bench::{Bench, Client, collect, noise, saved_files};

/// Everything is repacked that can be.
fn eager() -> Options {
    let repack = Limits { most: 1 << 30, small: 60_000, many: 6, waste: 1 };
    Options { repack, ..Options::new("collector") }
}

fn assert_all_can_be_read(bench: &Bench, saved: &[(kitbag::base::id::GenerationId, crate::bench::Files)]) {
    for (_, generation) in bench.generations() {
        let files = &saved.iter().find(|(id, _)| *id == generation.id).unwrap().1;
        assert_eq!(&saved_files(&bench.repository, &generation), files);
        // Also by somebody who has read nothing yet.
        let fresh = bench.over(std::sync::Arc::new(bench.memory.clone()));
        assert_eq!(&saved_files(&fresh, &generation), files);
    }
}

fn nights(
    client: &Client,
    from: u64,
    count: u64,
) -> Vec<(kitbag::base::id::GenerationId, crate::bench::Files)> {
    (from..from + count)
        .map(|night| {
            client.write(&format!("new/{night}"), &noise(night, 5000));
            let id = client.backup().id;
            (id, client.files())
        })
        .collect()
}

#[test]
fn the_small_bags_of_many_nights_are_put_together() {
    let bench = Bench::new();
    let client = bench.client("laptop");
    let mut saved = nights(&client, 0, 8);
    let before = bench.bags();
    let summary = collect(&bench.repository, &eager()).unwrap();
    assert!(summary.repacked.files >= 12 && summary.written.files == 2, "{summary:?}");
    assert_eq!(summary.removed, summary.repacked);
    assert!(bench.bags() < before - 9, "{before} to {}: {summary:?}", bench.bags());
    bench.assert_clean();
    assert_all_can_be_read(&bench, &saved);
    // Unchanged files refer to bags that are gone, and the next nights do no worse for it.
    saved.extend(nights(&client, 100, 8));
    collect(&bench.repository, &eager()).unwrap();
    bench.assert_clean();
    assert_all_can_be_read(&bench, &saved);
    // What was moved twice is listed once.
    assert_eq!(bench.memory.names_below("moved").len(), 1);
    assert_eq!(collect(&bench.repository, &eager()).unwrap().repacked, Amount::default());
    // When nobody refers to the old bags any more, the record goes, too.
    for (client, generation) in bench.generations() {
        bench.forget(client, generation.id);
    }
    collect(&bench.repository, &eager()).unwrap();
    bench.assert_clean();
    assert_eq!((bench.bags(), bench.memory.names_below("moved").len()), (0, 0));
}

#[test]
fn of_bags_that_are_mostly_dead_the_rest_is_copied() {
    let bench = Bench::new();
    let client = bench.client("laptop");
    client.write("kept", &noise(1, 10_000));
    client.write("large", &noise(2, 300_000));
    let first = client.backup();
    client.write("large", b"small now, and inline");
    let saved = vec![(client.backup().id, client.files())];
    bench.forget(client.id(), first.id);
    let before: usize =
        bench.memory.names_below("bags").iter().map(|name| bench.memory.contents(name).unwrap().len()).sum();
    let summary = collect(&bench.repository, &eager()).unwrap();
    assert!(summary.repacked.files == 1 && summary.removed.bytes > 300_000, "{summary:?}");
    let after: usize =
        bench.memory.names_below("bags").iter().map(|name| bench.memory.contents(name).unwrap().len()).sum();
    assert!(after < before - 280_000, "{before} to {after}");
    bench.assert_clean();
    assert_all_can_be_read(&bench, &saved);
    // And with a cache, from nothing.
    let other = bench.client_over("laptop", bench.over(std::sync::Arc::new(bench.memory.clone())), true);
    assert_eq!(saved_files(&other.repository, &bench.generations()[0].1), client.files());
}

#[test]
fn no_more_is_copied_than_is_allowed() {
    let bench = Bench::new();
    let client = bench.client("laptop");
    nights(&client, 0, 8);
    let limits = Limits { most: 20_000, ..eager().repack };
    let summary = collect(&bench.repository, &Options { repack: limits, ..eager() }).unwrap();
    assert!(summary.repacked.bytes <= 20_000, "{summary:?}");
    let summary =
        collect(&bench.repository, &Options { repack: Limits { most: 0, ..limits }, ..eager() }).unwrap();
    assert_eq!(summary.repacked, Amount::default());
}
