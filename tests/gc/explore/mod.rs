//! The lease protocol, explored: the same code that runs against a server, stopped before each call to the store.
//!
//! Some actors (backups, collectors, somebody who forgets or revokes) share a store. Each runs in a thread of its own until it is about to make a call that others could notice, and
//! then waits to be chosen; one of them at a time makes its call. The search tries every choice, in every state once: a state is what the store holds, and what each actor has
//! seen and done so far. After each change it is checked that every generation can be read. An actor may be killed
//! behind any of its changes: its leases stay, and it makes no call any more. (Where it is killed between two calls that change nothing, nobody sees.)
//!
//! Collectors are `gc::run` as it is. Backups are small ones, of a few objects without directories, made of the parts of the real one that the protocol is about:
//! session, lists, custody, tables of bags, packer, segment, record.
//!
//! What counts as one step: a call; several readings of files one after the other; a listing of `index/` or `bags/` together with the call before it.
//!
//! What is searched: all orders in which actors who could go on are interrupted for others at most so often, and at most so many are killed; [`tests`] says how often and how many, and the tests show how
//! many states that is. What is beyond is tried at [`random`]. That the search would find what is not right is shown in [`rules`], where one rule after the other is not kept.

mod actors;
mod random;
mod rules;
mod search;
mod setup;
mod store;
mod tests;
mod world;
