//! What bag lists count, what garbage collection has given up, and what is remembered of a check.

use super::tests::{Bench, Blow, check, fsck, noise, rewrite, strike};
use super::*;
use crate::bag::format::HEADER;
use crate::bag::{Packer, PackerEvents, PackerOptions, StoredBag};
use crate::base::id::CollectionId;
use crate::base::time::SystemClock;
use crate::cache::Cache;
use crate::compress::Level;
use crate::condemned::{Doomed, List};
use crate::crypto::Kind;
use crate::generation::baglist;
use crate::generation::format::encode_bucket;
use crate::monitor::collect::Collect;
use crate::monitor::{Change, Counter, Problem};
use crate::sealed;
use crate::store::Name;
use std::sync::Mutex;

struct Quiet;

impl PackerEvents for Quiet {
    fn placed(&self) {}
    fn queued(&self, _bytes: u64) {}
    fn stored(&self, _bag: &StoredBag) {}
}

#[test]
fn a_list_that_miscounts_is_told() {
    let bench = Bench::filled();
    // Twice the same directory, and twice the same file: counted twice.
    for copy in ["copy", "other/copy"] {
        bench.write(&format!("{copy}/one"), &noise(1, 30_000));
        bench.write(&format!("{copy}/another"), &noise(1, 30_000));
    }
    bench.backup();
    let (_, collect) = check(&bench.repository, false);
    assert_eq!(collect.problems(), Vec::<String>::new());

    let source = Source::new(bench.repository.bags(), OPENED);
    let name = rewrite(&bench, |generation| {
        let mut uses = baglist::read(&source, &generation.bag_list).unwrap();
        assert_eq!(generation.bag_list.bits, 0);
        uses[0].bytes += 1;
        let store = bench.repository.store();
        let options = PackerOptions { streams: 1, ..PackerOptions::new(Level::Off, 1) };
        let packer = Packer::new([store.clone(), store.clone()], bench.sealing(), options, Arc::new(Quiet));
        let bytes = encode_bucket(&uses);
        let placing = packer.put(BagKind::Tree, source.reader().id_of(&bytes), &bytes).unwrap();
        packer.quiesce().unwrap();
        packer.finish().unwrap();
        generation.bag_list.buckets = vec![placing.get().unwrap()];
    });
    let (_, collect) = check(&bench.repository, false);
    let is_told = |line: &String| line.contains(name.as_str()) && line.contains("how much it needs");
    assert_eq!(
        collect.problems().iter().filter(|line| is_told(line)).count(),
        1,
        "{:#?}",
        collect.problems()
    );
}

fn publish(bench: &Bench, kind: Kind, name: &Name, plaintext: &[u8]) {
    let (keys, id) = (bench.repository.keys(), bench.repository.id());
    bench.memory.put(name, sealed::encode(keys, id, kind, name, plaintext));
}

#[test]
fn what_was_given_up_though_it_is_needed_is_told_before_it_is_gone() {
    let bench = Bench::filled();
    let bag: BagId = bench.bag(BagKind::Data).last().parse().unwrap();
    let id = CollectionId([7; 16]);
    // Condemned is not given up: it may be let off.
    let list = List { dead: [bag].into(), ..List::default() };
    publish(&bench, Kind::Condemned, &layout::condemned(id), &list.encode());
    assert_eq!(check(&bench.repository, false).0.damages, 0);
    let doomed = Doomed { bags: [bag].into() };
    publish(&bench, Kind::CondemnedDoomed, &layout::condemned_doomed(id), &doomed.encode());
    let (summary, collect) = check(&bench.repository, false);
    assert_eq!(summary.damages, 1, "{:#?}", collect.problems());
    assert!(collect.problems().iter().any(|line| line.contains("given it up")), "{:#?}", collect.problems());

    // Emptied means that all of it was moved, which it was not.
    bench.memory.delete(&layout::condemned_doomed(id));
    let list = List { emptied: [bag].into(), ..List::default() };
    publish(&bench, Kind::Condemned, &layout::condemned(id), &list.encode());
    assert_eq!(check(&bench.repository, false).0.damages, 1);
}

/// With a cache of its own.
fn cached(bench: &mut Bench) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    bench.repository = bench.repository.clone().with_cache(Cache::open(dir.path(), 1 << 30).unwrap());
    dir
}

#[test]
fn what_was_found_damaged_is_stored_again_by_the_next_reread() {
    let mut bench = Bench::filled();
    let _dir = cached(&mut bench);
    let name = bench.bag(BagKind::Data);
    let bag: BagId = name.last().parse().unwrap();
    let good = bench.memory.contents(&name).unwrap();
    strike(&bench.memory, &name, Blow::Flip(HEADER + 30));
    assert!(bench.repository.cache().damaged().is_empty());
    assert_eq!(check(&bench.repository, true).0.damages, 1);
    assert_eq!(bench.repository.cache().damaged(), [bag].into());
    // A check that does not read it leaves that as it is.
    check(&bench.repository, false);
    assert_eq!(bench.repository.cache().damaged(), [bag].into());

    let (healed, _) = bench.backup_with(true);
    assert!(healed.generation.counts.new_bytes > 1 << 20, "{:?}", healed.generation.counts);
    let (_, collect) = check(&bench.repository, true);
    let hits =
        collect.problems().iter().filter(|line| line.contains(&healed.generation.id.to_string())).count();
    assert_eq!(hits, 0, "{:#?}", collect.problems());
    // What helped once is not said again. But the index still offers the bag to whoever knows nothing of the damage.
    let says = |collect: &Collect, offers: bool| {
        let lines = collect.problems();
        assert!(lines.iter().any(|line| line.contains(name.last())), "{lines:#?}");
        for line in lines {
            assert!(line.contains("kitbag forget") && line.contains("kitbag gc"), "{line}");
            assert!(!line.contains("--reread"), "{line}");
            assert_eq!(line.contains("kitbag fsck --read-data --repair"), offers, "{line}");
        }
    };
    says(&collect, true);
    let data = || Some(Portion::default());
    let (_, collect) =
        fsck(&bench.repository, &Options { read_data: data(), repair: true, ..Options::default() });
    says(&collect, false);
    says(&check(&bench.repository, true).1, false);
    // A repair that does not read it takes it in again.
    fsck(&bench.repository, &Options { repair: true, ..Options::default() });
    says(&check(&bench.repository, true).1, true);

    // What is well again, or gone, is trusted again.
    bench.memory.delete(&name);
    bench.memory.put(&name, good);
    assert_eq!(check(&bench.repository, true).0.damages, 0);
    assert!(bench.repository.cache().damaged().is_empty());
    bench.repository.cache().note_damaged([BagId([1; 16])], |_| false);
    check(&bench.repository, false);
    assert!(bench.repository.cache().damaged().is_empty());
}

#[test]
fn a_damaged_bag_that_nobody_needs_is_for_gc() {
    let bench = Bench::filled();
    let name = bench.bag(BagKind::Data);
    strike(&bench.memory, &name, Blow::Flip(HEADER + 30));
    for generation in bench.names("generations") {
        bench.memory.delete(&generation);
    }
    for (repair, offers) in [(false, true), (true, false), (false, false)] {
        let options = Options { read_data: Some(Portion::default()), repair, ..Options::default() };
        let (_, collect) = fsck(&bench.repository, &options);
        let problems = collect.problems();
        let line = problems.iter().find(|line| line.contains("no generation needs it: ")).unwrap();
        assert!(line.contains(name.last()) && line.ends_with("`kitbag gc` removes it"), "{line}");
        assert_eq!(line.contains("kitbag fsck --read-data --repair"), offers, "{line}");
    }
}

#[test]
fn whoever_reads_data_remembers_what_is_damaged() {
    let mut bench = Bench::filled();
    let _dir = cached(&mut bench);
    let name = bench.bag(BagKind::Data);
    strike(&bench.memory, &name, Blow::Flip(HEADER + 30));
    let reader = bench.repository.bags();
    let bag: BagId = name.last().parse().unwrap();
    let table = reader.find_table(bag).unwrap().table;
    let first = table.references(bag).next().unwrap();
    assert!(reader.block(BagKind::Data, &first.place).is_err());
    assert_eq!(bench.repository.cache().damaged(), [bag].into());
}

/// Stops the check at the beginning of a phase, or when the first objects were checked; hears of damage.
#[derive(Default)]
struct Impatient {
    cancel: Cancel,
    phase: Option<&'static str>,
    told: Mutex<Vec<String>>,
}

impl Monitor for Impatient {
    fn count(&self, counter: Counter, _amount: u64) {
        if counter == Counter::ObjectsChecked && self.phase.is_none() {
            self.cancel.cancel();
        }
    }

    fn phase(&self, name: &'static str) {
        if self.phase == Some(name) {
            self.cancel.cancel();
        }
    }

    fn path(&self, _path: &[u8]) {}
    fn change(&self, _path: &[u8], _change: Change) {}

    fn problem(&self, problem: Problem) {
        let subject = String::from_utf8_lossy(&problem.subject);
        self.told.lock().unwrap().push(format!("{subject}: {}", problem.text));
    }
}

#[test]
fn who_is_interrupted_goes_on_where_he_was() {
    let bench = Bench::filled();
    for number in 0..16 {
        bench.write(&format!("more/{number}"), &noise(50 + number, 100_000));
        bench.backup();
    }
    let cancel = Cancel::new();
    let monitor: Arc<dyn Monitor> = Arc::new(Impatient { cancel: cancel.clone(), ..Impatient::default() });
    let options = Options { read_data: Some(Portion::default()), ..Options::default() };
    let outcome = run(&bench.repository, &options, &monitor, &SystemClock::new(), &cancel);
    let Err(FsckError::Interrupted { read_up_to: Some(last), damages: 0 }) = outcome else {
        panic!("{outcome:?}");
    };
    let ids: Vec<BagId> = bench.bags(BagKind::Data).iter().map(|name| name.last().parse().unwrap()).collect();
    assert!(ids.contains(&last) && ids.iter().max() != Some(&last));
}

#[test]
fn who_is_interrupted_tells_first_what_was_seen() {
    for phase in ["reading directories", "checking generations"] {
        let mut bench = Bench::filled();
        let _dir = cached(&mut bench);
        let name = bench.bag(BagKind::Data);
        let bag: BagId = name.last().parse().unwrap();
        strike(&bench.memory, &name, Blow::Flip(HEADER + 30));
        let impatient = Arc::new(Impatient { phase: Some(phase), ..Impatient::default() });
        let monitor: Arc<dyn Monitor> = impatient.clone();
        let options = Options { read_data: Some(Portion::default()), ..Options::default() };
        let outcome = run(&bench.repository, &options, &monitor, &SystemClock::new(), &impatient.cancel);
        assert!(matches!(outcome, Err(FsckError::Interrupted { damages: 1, .. })), "{phase}: {outcome:?}");
        let told = impatient.told.lock().unwrap().join(" ");
        assert!(told.contains(name.last()) && told.contains("stopped before it knew"), "{phase}: {told}");
        assert_eq!(bench.repository.cache().damaged(), [bag].into());
    }
}

#[test]
fn where_a_portion_ended_is_known_though_the_rest_is_interrupted() {
    let bench = Bench::filled();
    bench.write("more", &noise(50, 100_000));
    bench.backup();
    let impatient = Arc::new(Impatient { phase: Some("checking generations"), ..Impatient::default() });
    let monitor: Arc<dyn Monitor> = impatient.clone();
    let portion = Portion { share: Some(1000), ..Portion::default() };
    let options = Options { read_data: Some(portion), ..Options::default() };
    let outcome = run(&bench.repository, &options, &monitor, &SystemClock::new(), &impatient.cancel);
    assert!(
        matches!(outcome, Err(FsckError::Interrupted { read_up_to: Some(_), damages: 0 })),
        "{outcome:?}"
    );
}
