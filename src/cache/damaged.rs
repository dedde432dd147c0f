//! Which bags were found damaged from here.
//!
//! Whoever reads blocks of data notes the bags that could not be opened, whoever reads whole bags notes which are well again, or gone. A backup finds nothing in those that are noted: what it
//! has of them it stores again. Like everything here, this may be lost: then the damage is found again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::{Cache, Kind};
use crate::base::id::BagId;

/// The name of the file, among listings.
const NAME: &str = "damaged";

/// Threads of this process take turns.
static TURN: Mutex<()> = Mutex::new(());

impl Cache {
    /// The bags that were found damaged.
    #[must_use]
    pub fn damaged(&self) -> BTreeSet<BagId> {
        let kept = self.get(Kind::Listing, NAME).unwrap_or_default();
        kept.chunks_exact(BagId::LEN).filter_map(BagId::from_slice).collect()
    }

    /// Notes these bags as damaged, and forgets those that are well, or gone.
    pub fn note_damaged(&self, found: impl IntoIterator<Item = BagId>, is_well: impl Fn(BagId) -> bool) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.damaged();
        let mut after: BTreeSet<BagId> = before.iter().copied().filter(|bag| !is_well(*bag)).collect();
        after.extend(found);
        if after.is_empty() && !before.is_empty() {
            self.remove(Kind::Listing, NAME);
        } else if after != before {
            let bytes: Vec<u8> = after.iter().flat_map(|bag| bag.0).collect();
            self.put(Kind::Listing, NAME, &bytes);
        }
    }
}
