//! A client that may only add could date what it adds as it likes: that is told, and pushes nothing else out.

use std::sync::Arc;

use kitbag::generation::session::Session;
use kitbag::repo;
use kitbag::store::local::LocalStore;

use crate::common::Kitbag;

#[test]
fn a_generation_that_arrives_dated_in_the_future_is_flagged_and_wins_nothing() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("tree/file", "contents");
    kitbag.run(["backup", "tree"]).code(0);
    let store = Arc::new(LocalStore::new(kitbag.path("repository")).unwrap());
    let opened = repo::open(store, &mut |_| None).unwrap();
    let client = opened.keys().names().client_id(b"laptop");
    let listed = opened.catalog().list(client).wait().unwrap();
    let found = opened.catalog().find(&[(client, listed)]);
    let mut forged = found[0].record.as_ref().unwrap().clone();
    let mut session = Session::begin(opened.store(), &opened.sealing(), client).session;
    session.created().unwrap();
    (forged.id, forged.started.secs) = (session.id(), forged.started.secs + 400 * 86_400);
    forged.ended = forged.started;
    session.fill(&forged).unwrap();
    session.publish().unwrap();

    let listed = kitbag.run(["generations"]).code(0).stdout;
    let flagged = listed.lines().filter(|line| line.ends_with("(dated in the future)")).count();
    assert_eq!((listed.lines().count(), flagged), (2, 1), "{listed}");
    let json = kitbag.run(["generations", "--json"]).code(0).stdout;
    assert_eq!(json.matches("\"future\":true").count(), 1, "{json}");
    let said = kitbag.run(["forget", "--keep", "1", "--dry-run"]).code(0).stdout;
    assert!(said.contains("dated in the future, which never counts"), "{said}");
    let kept = kitbag.run(["forget", "--keep", "1"]).code(0);
    assert!(!kept.stdout.is_empty());
    assert_eq!(kitbag.run(["generations"]).code(0).stdout, listed, "neither pushes the other out");
    let latest = kitbag.run(["ls", "--json"]).code(0);
    assert!(!latest.stdout.contains(&forged.id.to_string()));
}
