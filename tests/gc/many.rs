//! The same chunk over and over again.

use crate::bench::{Bench, saved_files};
use kitbag::gc::{Limits, Options};

use crate::bench::collect;

fn is_long() -> bool {
    std::env::var_os("KITBAG_TEST_LONG").is_some()
}

/// A file of one chunk again and again, in pieces of 4 KiB: as often as there are millions in the long form.
#[test]
fn a_file_of_one_chunk_over_and_over() {
    let bench = Bench::new();
    let client = bench.client("laptop");
    let chunks = if is_long() { 1_000_000 } else { 10_000 };
    let piece = vec![7u8; 4096 * 100];
    let path = client.path("same");
    let mut file = std::fs::File::create(path).unwrap();
    for _ in 0..chunks / 100 {
        std::io::Write::write_all(&mut file, &piece).unwrap();
    }
    drop(file);
    let generation = client.backup();
    assert_eq!(generation.counts.bytes, 4096 * chunks);
    assert!(generation.counts.new_bytes < 8192, "{:?}", generation.counts);
    // The bag list counts each reference.
    let source = kitbag::bag::source::Source::new(bench.repository.bags(), 1 << 20);
    let uses = kitbag::generation::baglist::read(&source, &generation.bag_list).unwrap();
    assert_eq!(uses.iter().map(|one| one.objects).max(), Some(chunks));
    bench.gc();
    bench.assert_clean();
    if !is_long() {
        assert_eq!(saved_files(&bench.repository, &generation), client.files());
    }
    // And it goes when nobody needs it.
    bench.forget(client.id(), generation.id);
    bench.gc();
    bench.assert_clean();
    assert_eq!(bench.bags(), 0);
}

/// Equal files in one directory, and the bag that holds their chunk is emptied into another.
#[test]
fn many_equal_files() {
    let bench = Bench::new();
    let client = bench.client("laptop");
    let files = if is_long() { 1_000_000 } else { 3000 };
    for number in 0..files {
        client.write(&format!("{}/{number}", number % 7), &[3; 700]);
    }
    client.backup();
    client.write("another", &[4; 900]);
    let generation = client.backup();
    let repack = Limits { most: 1 << 30, small: 1 << 20, many: 2, waste: 1 };
    let summary = collect(&bench.repository, &Options { repack, ..Options::new("collector") }).unwrap();
    assert!(summary.repacked.files > 0, "{summary:?}");
    bench.assert_clean();
    assert!(saved_files(&bench.repository, &generation) == client.files());
}
