//! The lease protocol, explored: the same code that runs against a server, stopped before each call to the store.
//!
//! Some actors (backups, collectors, somebody who forgets or revokes) share a store. Each runs in a thread of its own until it is about to make a call that others could notice, and
//! then waits to be chosen; one of them at a time makes its call. The search tries every choice, in every state once: a state is what the store holds, and what each actor has
//! seen and done so far. After each step it is checked that every generation can be read. That an actor stops for ever needs no choice of its own: whatever the others do
//! without it is among what is tried.
//!
//! Collectors are `gc::run` as it is. Backups are small ones, of a few objects without directories, made of the parts of the real one that the protocol is about:
//! session, lists, custody, tables of bags, packer, segment, record.
//!
//! What counts as one step: a call; several readings of files one after the other; a listing of `index/` or `bags/` together with the call before it.

mod actors;
mod search;
mod tests;
mod world;
