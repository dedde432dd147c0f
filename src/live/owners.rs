//! Names of users and groups, asked for once each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

use nix::unistd::{Gid, Group, Uid, User};

use crate::entry::Owner;

/// What the system's user database says, remembered. Shared by all threads; a name that the database does not know
/// (or cannot tell at the moment) stays a number.
#[derive(Debug, Default)]
pub struct Owners {
    owners: RwLock<HashMap<(u32, u32), Arc<Owner>>>,
    users: RwLock<HashMap<u32, Box<[u8]>>>,
    groups: RwLock<HashMap<u32, Box<[u8]>>>,
    uids: RwLock<HashMap<Box<[u8]>, Option<u32>>>,
    gids: RwLock<HashMap<Box<[u8]>, Option<u32>>>,
}

impl Owners {
    /// Nothing known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The user and group with these numbers; equal ones share their memory.
    #[must_use]
    pub fn get(&self, uid: u32, gid: u32) -> Arc<Owner> {
        remembered(&self.owners, (uid, gid), || {
            let user = remembered(&self.users, uid, || user_name(uid));
            let group = remembered(&self.groups, gid, || group_name(gid));
            Arc::new(Owner { uid, gid, user, group })
        })
    }

    /// The number of the user of this name here.
    #[must_use]
    pub fn uid_of(&self, user: &[u8]) -> Option<u32> {
        remembered(&self.uids, user.into(), || {
            let name = std::str::from_utf8(user).ok().filter(|name| !name.is_empty())?;
            User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
        })
    }

    /// The number of the group of this name here.
    #[must_use]
    pub fn gid_of(&self, group: &[u8]) -> Option<u32> {
        remembered(&self.gids, group.into(), || {
            let name = std::str::from_utf8(group).ok().filter(|name| !name.is_empty())?;
            Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
        })
    }
}

fn user_name(uid: u32) -> Box<[u8]> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map(|user| user.name.into_bytes()).unwrap_or_default().into_boxed_slice()
}

fn group_name(gid: u32) -> Box<[u8]> {
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    group.map(|group| group.name.into_bytes()).unwrap_or_default().into_boxed_slice()
}

/// Asks outside the lock: a user database may be a slow server. Two threads may ask at once; the first answer stays.
fn remembered<K: Eq + Hash, V: Clone>(map: &RwLock<HashMap<K, V>>, key: K, ask: impl FnOnce() -> V) -> V {
    if let Some(known) = map.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return known.clone();
    }
    let answer = ask();
    map.write().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(answer).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let owners = Owners::new();
        let root = owners.get(0, 0);
        assert_eq!((&*root.user, &*root.group), (&b"root"[..], &b"root"[..]));
        assert!(Arc::ptr_eq(&root, &owners.get(0, 0)));
        let nobody = owners.get(3_999_999_999, 3_999_999_998);
        assert_eq!(
            (nobody.uid, nobody.user.len(), nobody.gid, nobody.group.len()),
            (3_999_999_999, 0, 3_999_999_998, 0)
        );
        assert_eq!(owners.uid_of(b"root"), Some(0));
        assert_eq!(owners.gid_of(b"no such group"), None);
        assert_eq!(owners.uid_of(b""), None);
    }
}
