//! Each rule of the protocol, not kept: the search finds a generation that refers to what is gone.

use super::actors::{self, Plan, Rules, revoker};
use super::setup::{
    around_verdicts, garbage, heirs, late_verdict, nights, revoked_repacker, sabotaged, stale_index, thinned,
    where_it_matters,
};
use super::world::Sabotage;

/// A backup of what is garbage, which keeps all rules but one, and a collector.
fn breaks_with(rules: Rules) {
    let setup = garbage();
    let plan = Plan { rules, ..Plan::new("laptop", &[1]) };
    setup.breaks(&[plan.actor(&setup.stored), setup.gc(2)], where_it_matters(4, 0));
}

/// No fresh reference to what is condemned.
#[test]
fn without_exclusion_it_breaks() {
    breaks_with(Rules { excludes: false, ..actors::ALL });
}

/// The session is created before anything is read.
#[test]
fn with_a_lease_that_comes_late_it_breaks() {
    breaks_with(Rules { lease_first: false, ..actors::ALL });
}

/// Sessions are listed behind the publishing of a list.
#[test]
fn with_sessions_listed_too_early_it_breaks() {
    let setup = garbage();
    let gc = sabotaged(setup.gc(1), Sabotage::SessionsTooEarly);
    setup.breaks(&[Plan::new("laptop", &[1]).actor(&setup.stored), gc], where_it_matters(4, 0));
}

/// Generations are listed behind sessions.
#[test]
fn with_generations_listed_too_early_it_breaks() {
    let setup = garbage();
    let gc = sabotaged(setup.gc(1), Sabotage::GenerationsTooEarly);
    setup.breaks(&[Plan::new("laptop", &[1]).actor(&setup.stored), gc], where_it_matters(4, 0));
}

/// What was moved is listed behind sessions.
#[test]
fn with_moves_listed_too_early_it_breaks() {
    let setup = nights();
    let gc = sabotaged(setup.gc_of("janitor", 2), Sabotage::MovesTooEarly);
    setup.breaks(&[gc, setup.repacker(1)], where_it_matters(3, 0));
}

/// A generation is published only by who holds his lease.
#[test]
fn without_a_lease_it_breaks() {
    let setup = garbage();
    let (plan, revoke) = (Plan::new("laptop", &[1]), revoker(setup.client("laptop")));
    let plan = sabotaged(plan.actor(&setup.stored), Sabotage::NoLease);
    setup.breaks(&[plan, revoke, setup.gc(1)], where_it_matters(3, 0));
}

/// What was moved is published only by who holds his lease.
#[test]
fn with_moves_published_without_a_lease_it_breaks() {
    let (setup, actors) = revoked_repacker(Some(Sabotage::NoLease));
    setup.breaks(&actors, where_it_matters(3, 0));
}

/// Nothing is taken over from a generation that may refer to what is condemned.
#[test]
fn without_suspicion_it_breaks() {
    let (setup, actors) = heirs(Rules { suspects: false, ..actors::ALL });
    setup.breaks(&actors, where_it_matters(3, 0));
}

/// What a session holds that follows another is looked at once more.
#[test]
fn without_a_second_look_behind_a_checkpoint_it_breaks() {
    let setup = garbage();
    let rules = Rules { renews: false, ..actors::ALL };
    let plan = Plan { checkpoint: true, rules, ..Plan::new("laptop", &[2, 1]) };
    setup.breaks(&[plan.actor(&setup.stored), setup.gc(2)], where_it_matters(3, 0));
}

/// A verdict is published once, and holds for all.
#[test]
fn with_two_verdicts_it_breaks() {
    let (setup, actors) = late_verdict(Some(Sabotage::DoomTwice));
    setup.breaks(&actors, around_verdicts(2, 1));
}

/// Behind a verdict it is looked whether the list is still there.
#[test]
fn with_a_verdict_on_a_list_that_is_gone_it_breaks() {
    let (setup, actors) = late_verdict(Some(Sabotage::ListsTooEarly));
    setup.breaks(&actors, around_verdicts(2, 0));
}

/// References into bags that were copied in part are looked at one by one.
#[test]
fn without_looking_through_what_was_thinned_it_breaks() {
    let (setup, actors) = thinned(Some(Sabotage::NoLookThrough));
    setup.breaks(&actors, where_it_matters(2, 0));
}

/// The table of a bag decides whether it is there, not the index.
#[test]
fn without_asking_tables_it_breaks() {
    let setup = stale_index();
    let plan = Plan { rules: Rules { asks_tables: false, ..actors::ALL }, ..Plan::new("laptop", &[1]) };
    setup.breaks(&[plan.actor(&setup.stored)], where_it_matters(0, 0));
}
