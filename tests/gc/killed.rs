//! Collections that are killed after each of their changes, and the one that comes after.

use std::sync::Arc;

use kitbag::gc::{Limits, Options};
use kitbag::store::testing::{FaultyStore, MemoryStore};

use crate::bench::{Bench, collect, noise, saved_files};

/// Runs a collection to each of its changes, and then another one to its end.
fn killed_everywhere(bench: &Bench, options: &Options) -> u64 {
    let generations = bench.generations();
    let files: Vec<_> =
        generations.iter().map(|(_, generation)| saved_files(&bench.repository, generation)).collect();
    let counted = FaultyStore::new(Arc::new(bench.memory.snapshot()), Vec::new());
    collect(&bench.over(Arc::new(counted.clone())), options).unwrap();
    let changes = counted.mutating_calls();
    for killed_after in 0..changes {
        let memory: MemoryStore = bench.memory.snapshot();
        let faulty = FaultyStore::stop_after(Arc::new(memory.clone()), killed_after);
        let _ = collect(&bench.over(Arc::new(faulty.clone())), options);
        let is_stopped = faulty.is_stopped();
        assert!(is_stopped || killed_after + 4 > changes, "{killed_after} of {changes}");
        let rest = Bench {
            repository: bench.over(Arc::new(memory.clone())),
            memory,
            clock: Arc::clone(&bench.clock),
        };
        let can_be_read = |when: &str| {
            for ((_, generation), files) in generations.iter().zip(&files) {
                assert!(
                    &saved_files(&rest.repository, generation) == files,
                    "{when}: killed after {killed_after}"
                );
            }
        };
        can_be_read("before the next");
        rest.fsck();
        // Somebody saves what was garbage, beside what the dead one has left.
        let again = rest.client_over("laptop", rest.over(Arc::new(rest.memory.clone())), false);
        again.write("again", &noise(killed_after % 3, 3000));
        again.write("changes", &noise(100, 4000));
        let last = again.backup();
        // The session of the dead one is stale some day.
        rest.memory.set_clock(rest.memory.clock() + 8 * 24 * 3600);
        let plain = Options { repack: Limits { most: 0, ..Limits::default() }, ..Options::new("collector") };
        collect(&rest.repository, &plain).unwrap();
        collect(&rest.repository, &plain).unwrap();
        can_be_read("after the next");
        assert!(saved_files(&rest.repository, &last) == again.files(), "killed after {killed_after}");
        rest.assert_clean();
    }
    changes
}

fn some_nights() -> Bench {
    let bench = Bench::new();
    let client = bench.client("laptop");
    client.write("kept", &noise(1000, 9000));
    for night in 0..5 {
        client.write(&format!("new/{night}"), &noise(night, 3000));
        client.write("changes", &noise(100 + night, 4000 + usize::try_from(night).unwrap()));
        client.backup();
    }
    let mut all = bench.generations();
    all.sort_by_key(|(_, generation)| generation.started);
    for (client, generation) in &all[..3] {
        bench.forget(*client, generation.id);
    }
    bench
}

#[test]
fn a_collection_may_be_killed_anywhere() {
    let changes = killed_everywhere(&some_nights(), &Options::new("collector"));
    assert!(changes > 15, "{changes}");
}

#[test]
fn a_repacking_collection_may_be_killed_anywhere() {
    let repack = Limits { most: 1 << 30, small: 1 << 20, many: 2, waste: 1 };
    let changes = killed_everywhere(&some_nights(), &Options { repack, ..Options::new("collector") });
    assert!(changes > 30, "{changes}");
}
