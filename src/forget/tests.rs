//! What becomes of generations that were made up.

use std::sync::Arc;

use super::*;
use crate::entry::{Content, Entry, Kind, Metadata, Owner};
use crate::generation::{BagListRef, CatalogError, Counts, Root, TagFile};
use crate::store::testing::{CallLog, Fault, FaultyStore, MemoryStore, Op};

const LAPTOP: ClientId = ClientId([7; 16]);
const DAY: i64 = 86_400;
/// 2025-06-11, a Wednesday.
const NOW: i64 = 20_250 * DAY;

fn root(path: &str) -> Root {
    let metadata = Metadata {
        kind: Kind::Directory,
        mode: 0o755,
        owner: Arc::new(Owner::default()),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        inode: 1,
        size: 0,
        link_group: None,
        rdev: (0, 0),
        flags: 0,
    };
    let entry =
        Entry { name: (*b"root").into(), metadata, xattrs: Vec::new(), content: Content::Directory(None) };
    Root { path: path.as_bytes().to_vec(), entry }
}

fn made(id: u8, days_ago: i64) -> Generation {
    let at = Timestamp { secs: NOW - days_ago * DAY, nanos: 0 };
    Generation {
        id: GenerationId([id; 8]),
        client: "laptop".into(),
        host: "host".into(),
        started: at,
        ended: at,
        partial: false,
        roots: vec![root("/home")],
        counts: Counts::default(),
        options: Vec::new(),
        tags: Vec::new(),
        bag_list: BagListRef::default(),
    }
}

fn found(record: Generation) -> Found {
    Found { client: LAPTOP, id: record.id, record: Ok(record), tag_files: Vec::new() }
}

fn damaged() -> StoreError {
    StoreError::new(ErrorKind::Truncated, "read", "a file", "a test says so")
}

fn options(what: What) -> Options {
    Options { what, allow_empty: false, zone: TimeZone::UTC }
}

fn keep(policy: &str) -> Options {
    options(What::Policy(policy.parse().unwrap()))
}

fn name(specs: &[&str]) -> Options {
    options(What::Named(specs.iter().map(|spec| spec.parse().unwrap()).collect()))
}

fn planned(found: &[Found], options: &Options) -> Result<Plan, ForgetError> {
    plan(found, options, Timestamp { secs: NOW, nanos: 0 })
}

/// The ids' bytes of what is forgotten.
fn forgotten(found: &[Found], options: &Options) -> Vec<u8> {
    let Plan(whys) = planned(found, options).unwrap();
    assert_eq!(whys.len(), found.len());
    let gone = found.iter().zip(whys).filter(|(_, why)| why.forgets());
    gone.map(|(one, _)| one.id.0[0]).collect()
}

#[test]
fn each_group_is_judged_by_itself() {
    let mut of_others = made(3, 2);
    of_others.roots = vec![root("/etc")];
    let mut desktop = found(made(4, 2));
    desktop.client = ClientId([8; 16]);
    let all = [found(made(1, 3)), found(made(2, 1)), found(of_others), desktop];
    assert_eq!(forgotten(&all, &keep("1")), [1]);
    assert_eq!(forgotten(&all, &keep("5d")), [0u8; 0]);
}

#[test]
fn what_is_dated_in_the_future_never_counts() {
    let all = [found(made(1, 2)), found(made(2, 1)), found(made(3, -400))];
    let Plan(whys) = planned(&all, &keep("1")).unwrap();
    assert_eq!((&whys[0], whys[1].forgets(), &whys[2]), (&Why::NoRule, false, &Why::Future));
    // Nor does it make up for the last one that counts.
    let named = planned(&all, &name(&["0101", "0202"])).unwrap_err();
    assert!(matches!(named, ForgetError::Empty { .. }), "{named:?}");
    // But it can be named.
    assert_eq!(forgotten(&all, &name(&["0303"])), [3]);
}

#[test]
fn checkpoints_do_not_count() {
    let partial = |id, days| found(Generation { partial: true, ..made(id, days) });
    let all = [partial(1, 9), found(made(2, 5)), found(made(3, 4)), partial(4, 1)];
    let Plan(whys) = planned(&all, &keep("1d")).unwrap();
    assert_eq!((&whys[0], &whys[1], &whys[3]), (&Why::Needless, &Why::NoRule, &Why::Checkpoint));
    assert!(!whys[2].forgets());
    assert_eq!(forgotten(&[partial(1, 9), partial(2, 8)], &keep("1")), [0u8; 0]);
    assert_eq!(forgotten(&[partial(1, 9)], &name(&["01"])), [1]);
}

#[test]
fn a_tag_pins() {
    let all =
        [found(Generation { tags: vec!["keep".into()], ..made(1, 3) }), found(made(2, 2)), found(made(3, 1))];
    let Plan(whys) = planned(&all, &keep("1")).unwrap();
    assert_eq!(whys[0], Why::Pinned(vec!["keep".into()]));
    assert_eq!(forgotten(&all, &keep("1")), [2]);
    let named = planned(&all, &name(&["0101"])).unwrap_err();
    assert!(named.to_string().contains("keep"), "{named}");
}

#[test]
fn tags_that_cannot_be_read_pin_too() {
    let mut one = found(made(1, 3));
    one.tag_files = vec![TagFile { id: TagsId([1; 8]), tags: Err(CatalogError::Store(damaged())) }];
    let all = [one, found(made(2, 1))];
    assert_eq!(planned(&all, &keep("1")).unwrap().0[0], Why::Unreadable);
}

#[test]
fn the_last_one_is_kept_unless_told() {
    let all = [found(made(1, 3)), found(made(2, 1))];
    assert!(matches!(planned(&all, &name(&["0101", "latest"])), Err(ForgetError::Empty { .. })));
    assert_eq!(forgotten(&all, &Options { allow_empty: true, ..name(&["0101", "latest"]) }), [1, 2]);
    assert_eq!(forgotten(&all, &name(&["latest"])), [2]);
}

#[test]
fn what_cannot_be_read_is_left_alone_and_can_be_named() {
    let lost = Found {
        client: LAPTOP,
        id: GenerationId([9; 8]),
        record: Err(CatalogError::Store(damaged())),
        tag_files: Vec::new(),
    };
    let all = [found(made(1, 3)), found(made(2, 1)), lost];
    assert_eq!(forgotten(&all, &keep("1")), [1]);
    assert_eq!(forgotten(&all, &name(&["09"])), [9]);
    assert!(matches!(planned(&all, &name(&["77"])), Err(ForgetError::Spec(SpecError::None(_)))));
    assert!(matches!(planned(&all, &name(&["0"])), Err(ForgetError::Spec(SpecError::Ambiguous(..)))));
}

/// A store with these records (whose contents nobody reads) and a file of tags beside each.
fn stored(all: &[Found]) -> MemoryStore {
    let memory = MemoryStore::new();
    for one in all {
        memory.put(&layout::generation(one.client, one.id), Vec::new());
        memory.put(&layout::tags(one.client, one.id, TagsId([1; 8])), Vec::new());
    }
    memory
}

fn many() -> Vec<Found> {
    let with_tags = |id: u8| {
        let mut one = found(made(id, i64::from(100 - id)));
        one.tag_files = vec![TagFile { id: TagsId([1; 8]), tags: Ok(BTreeSet::new()) }];
        one
    };
    (1..=50).map(with_tags).collect()
}

#[test]
fn all_go_in_one_round_trip() {
    let all = many();
    let memory = stored(&all);
    let log = CallLog::new(Arc::new(memory.clone()));
    let plan = planned(&all, &keep("1")).unwrap();
    carry_out(&log, &all, &plan, &[]).unwrap();
    assert_eq!((log.count(Op::Remove), log.serial_round_trips()), (98, 1));
    assert_eq!(memory.names().len(), 2);
}

#[test]
fn killed_anywhere_it_can_be_run_again() {
    let all = many();
    let plan = planned(&all, &keep("1")).unwrap();
    for k in 0..98 {
        let memory = stored(&all);
        let stopped = FaultyStore::stop_after(Arc::new(memory.clone()), k);
        carry_out(&stopped, &all, &plan, &[]).unwrap_err();
        assert!(stopped.is_stopped());
        drop(stopped);
        let kept = all.last().unwrap();
        assert!(memory.names().contains(&layout::generation(kept.client, kept.id)), "after {k}");
        let strays = stray_tags(LAPTOP, &memory.list(&layout::generations(LAPTOP)).wait().unwrap());
        assert_eq!(strays.len(), usize::try_from(k % 2).unwrap(), "after {k}");
        carry_out(&memory, &all, &plan, &strays).unwrap();
        assert_eq!(memory.names().len(), 2, "after {k}");
    }
}

#[test]
fn one_that_cannot_be_removed_is_told_and_the_others_go() {
    let all = many();
    let memory = stored(&all);
    let faulty =
        FaultyStore::new(Arc::new(memory.clone()), vec![Fault::fail(Op::Remove, ErrorKind::Denied).nth(3)]);
    let error = carry_out(&faulty, &all, &planned(&all, &keep("1")).unwrap(), &[]).unwrap_err();
    assert_eq!((error.kind, memory.names().len()), (ErrorKind::Denied, 3));
}
