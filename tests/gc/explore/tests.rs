//! What was explored. The bounds in `./check` are small; `KITBAG_TEST_LONG=1` asks for the large ones.

use super::actors::{self, Plan, revoker};
use super::search::Bound;
use super::setup::{
    around_verdicts, garbage, heirs, is_long, late_verdict, nights, revoked_repacker, sabotaged, stale_index,
    switches, thinned, where_it_matters,
};
use super::world::Sabotage;

fn bound(short: Bound, long: Bound) -> Bound {
    if is_long() { long } else { short }
}

#[test]
fn a_backup_and_a_collector() {
    let setup = garbage();
    let all = bound(Bound { kills: 1, ..switches(1) }, Bound { kills: 1, ..switches(1000) });
    setup.holds(&[Plan::new("laptop", &[1]).actor(&setup.stored), setup.gc(2)], all);
}

#[test]
fn two_backups_and_a_collector() {
    let setup = garbage();
    let (one, other) = (Plan::new("laptop", &[1]), Plan::new("desk", &[1, 3]));
    let actors = [one.actor(&setup.stored), other.actor(&setup.stored), setup.gc(1)];
    setup.holds(&actors, bound(where_it_matters(1, 0), Bound { kills: 1, ..switches(2) }));
}

#[test]
fn a_backup_and_two_collectors() {
    let setup = garbage();
    let actors = [Plan::new("laptop", &[1]).actor(&setup.stored), setup.gc(1), setup.gc(1)];
    setup.holds(&actors, bound(where_it_matters(1, 0), Bound { kills: 1, ..switches(2) }));
}

#[test]
fn two_backups_of_which_one_is_revoked_two_collectors_and_whoever_is_killed() {
    let setup = garbage();
    let (one, other) = (Plan::new("laptop", &[1]), Plan::new("desk", &[1, 3]));
    let revoker = revoker(setup.client("laptop"));
    let (gc, janitor) = (setup.gc(1), setup.gc_of("janitor", 1));
    let actors = [one.actor(&setup.stored), other.actor(&setup.stored), gc, janitor, revoker];
    setup.holds(&actors, bound(where_it_matters(0, 1), where_it_matters(1, 1)));
}

#[test]
fn a_backup_that_is_revoked_and_a_collector() {
    let setup = garbage();
    let (plan, revoke) = (Plan::new("laptop", &[1]), revoker(setup.client("laptop")));
    let actors = [plan.actor(&setup.stored), revoke, setup.gc(1)];
    setup.holds(&actors, bound(where_it_matters(1, 0), Bound { kills: 1, ..switches(2) }));
}

#[test]
fn what_was_inherited() {
    let (setup, actors) = heirs(actors::ALL);
    setup.holds(&actors, bound(where_it_matters(1, 0), Bound { kills: 1, ..switches(2) }));
}

#[test]
fn a_checkpoint_and_a_collector() {
    let setup = garbage();
    let plan = Plan { checkpoint: true, ..Plan::new("laptop", &[2, 1]) };
    let actors = [plan.actor(&setup.stored), setup.gc(2)];
    setup.holds(&actors, bound(where_it_matters(1, 1), Bound { kills: 1, ..switches(2) }));
}

#[test]
fn a_backup_and_a_repacker() {
    let setup = nights();
    let actors = [Plan::new("laptop", &[1, 3, 4]).actor(&setup.stored), setup.repacker(2)];
    setup.holds(&actors, bound(where_it_matters(1, 0), Bound { kills: 1, ..switches(2) }));
}

#[test]
fn two_repackers() {
    let setup = nights();
    let actors = [setup.repacker(1), setup.repacker(1)];
    setup.holds(&actors, bound(where_it_matters(1, 0), Bound { kills: 1, ..switches(2) }));
}

#[test]
fn a_repacker_that_is_revoked() {
    let (setup, actors) = revoked_repacker(None);
    setup.holds(&actors, bound(where_it_matters(1, 0), where_it_matters(2, 1)));
}

#[test]
fn a_verdict_that_comes_late() {
    let (setup, actors) = late_verdict(None);
    setup.holds(&actors, bound(around_verdicts(1, 1), around_verdicts(2, 1)));
}

/// A verdict is published from a lease, too; but that it is published once, and void without its list, is what makes it hold.
#[test]
fn a_verdict_without_a_lease_does_no_harm() {
    let setup = garbage();
    let gc = sabotaged(setup.gc(1), Sabotage::NoLease);
    let revoker = revoker(setup.client("collector"));
    let laptop = Plan::new("laptop", &[1]).actor(&setup.stored);
    let actors = [gc, revoker, setup.gc_of("janitor", 1), laptop];
    setup.holds(&actors, bound(around_verdicts(1, 0), where_it_matters(2, 0)));
}

#[test]
fn what_was_not_copied() {
    let (setup, actors) = thinned(None);
    setup.holds(&actors, bound(where_it_matters(1, 0), where_it_matters(1, 1)));
}

#[test]
fn an_index_that_names_what_is_gone() {
    let setup = stale_index();
    setup.holds(&[Plan::new("laptop", &[1]).actor(&setup.stored), setup.gc(1)], where_it_matters(1, 0));
}
