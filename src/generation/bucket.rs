//! A bucket of a bag list by its bytes.
//!
//! Of the buckets that one generation after the other has at the same place, each differs from the one before in a few bags. So what is new in one is found by comparing bytes: runs
//! of ids that are the same, and whose counts are the same, are passed over, whatever they say. Only what differs is decoded.

use serde::{Deserialize, Serialize};

use super::format::{BagUse, MAX_BUCKET, RecordError};
use crate::bag::BagKind;
use crate::base::codec;
use crate::base::id::BagId;
use crate::base::varint;

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    #[serde(borrow, with = "serde_bytes")]
    bags: &'a [u8],
    /// Per bag: kind, objects, bytes.
    #[serde(borrow, with = "serde_bytes")]
    uses: &'a [u8],
}

/// The plaintext of a bucket, whose bags are ascending.
#[must_use]
pub fn encode(all: &[BagUse]) -> Vec<u8> {
    let (mut bags, mut uses) = (Vec::new(), Vec::new());
    for one in all {
        bags.extend_from_slice(one.bag.as_bytes());
        uses.push(one.kind.into());
        varint::put(&mut uses, one.objects);
        varint::put(&mut uses, one.bytes);
    }
    codec::encode(&Wire { bags: &bags, uses: &uses })
}

/// The bucket that these bytes hold.
///
/// # Errors
/// When the bytes are not a bucket, or its bags are not ascending.
pub fn decode(bytes: &[u8]) -> Result<Vec<BagUse>, RecordError> {
    let mut all = Vec::new();
    Kept::default().replace(bytes, &mut |one| all.push(one))?;
    Ok(all)
}

fn wrong() -> RecordError {
    RecordError::Meaning("the bag list is not valid")
}

/// A bucket that was looked through, kept for comparing.
#[derive(Debug, Default)]
pub struct Kept {
    bags: Vec<u8>,
    uses: Vec<u8>,
}

impl Kept {
    /// Puts the bucket that these bytes hold in place of this one, and gives `found` what it says that this one does not say. How many entries were decoded for that, of
    /// both. After an error nothing is kept.
    ///
    /// # Errors
    /// When the bytes are not a bucket, or its bags are not ascending.
    pub fn replace(&mut self, bytes: &[u8], found: &mut dyn FnMut(BagUse)) -> Result<u64, RecordError> {
        let Self { bags, uses } = std::mem::take(self);
        let wire: Wire<'_> = codec::decode(bytes, "bag list", MAX_BUCKET)?;
        let decoded = compare(Rest::of(&bags, &uses)?, Rest::of(wire.bags, wire.uses)?, found)?;
        // What is the same is taken over in one piece with what is not; the memory is that of the bucket before.
        let again = |mut old: Vec<u8>, new: &[u8]| {
            old.clear();
            old.extend_from_slice(new);
            old
        };
        *self = Self { bags: again(bags, wire.bags), uses: again(uses, wire.uses) };
        Ok(decoded)
    }
}

/// What is left of a bucket to look at.
struct Rest<'a> {
    bags: &'a [[u8; BagId::LEN]],
    uses: &'a [u8],
}

impl<'a> Rest<'a> {
    fn of(bags: &'a [u8], uses: &'a [u8]) -> Result<Self, RecordError> {
        let (bags, rest) = bags.as_chunks();
        if rest.is_empty() { Ok(Self { bags, uses }) } else { Err(wrong()) }
    }

    /// Passes over so many entries, whose counts are so many bytes.
    fn pass(&mut self, entries: usize, len: usize) {
        self.bags = self.bags.get(entries..).unwrap_or_default();
        self.uses = self.uses.get(len..).unwrap_or_default();
    }

    /// Decodes the next entry.
    fn take(&mut self) -> Option<BagUse> {
        let (&bag, bags) = self.bags.split_first()?;
        let (&kind, mut uses) = self.uses.split_first()?;
        let kind = BagKind::try_from(kind).ok()?;
        let (objects, bytes) = (varint::take(&mut uses)?, varint::take(&mut uses)?);
        *self = Self { bags, uses };
        Some(BagUse { bag: BagId(bag), kind, objects, bytes })
    }
}

/// Gives `found` the entries of `new` that `old`, which is valid, has not; how many entries were decoded.
fn compare(mut old: Rest<'_>, mut new: Rest<'_>, found: &mut dyn FnMut(BagUse)) -> Result<u64, RecordError> {
    let mut decoded = 0u64;
    let mut last: Option<[u8; BagId::LEN]> = None;
    while let Some(next) = new.bags.first() {
        if last.is_some_and(|last| last >= *next) {
            return Err(wrong());
        }
        let same = common(old.bags, new.bags);
        if same == 0 {
            if old.bags.first().is_some_and(|gone| gone < next) {
                old.pass(1, span(old.uses));
            } else {
                last = Some(*next);
                found(new.take().ok_or_else(wrong)?);
                decoded = decoded.saturating_add(1);
            }
            continue;
        }
        // Ascending, as they were in the other.
        last = new.bags.get(same.saturating_sub(1)).copied();
        if let Some(len) = same_uses(old.uses, new.uses, same) {
            old.pass(same, len);
            new.pass(same, len);
            continue;
        }
        for _ in 0..same {
            let (before, now) = (old.take().ok_or_else(wrong)?, new.take().ok_or_else(wrong)?);
            decoded = decoded.saturating_add(2);
            if before != now {
                found(now);
            }
        }
    }
    if new.uses.is_empty() { Ok(decoded) } else { Err(wrong()) }
}

/// How many ids both begin with.
fn common(old: &[[u8; BagId::LEN]], new: &[[u8; BagId::LEN]]) -> usize {
    let (old_runs, _) = old.as_chunks::<8>();
    let (new_runs, _) = new.as_chunks::<8>();
    let runs = old_runs.iter().zip(new_runs).take_while(|(old, new)| is_same_run(old, new)).count();
    let start = runs.saturating_mul(8);
    let tail = old.iter().zip(new).skip(start);
    start.saturating_add(tail.take_while(|(old, new)| old == new).count())
}

/// Whether eight ids are the same.
fn is_same_run(old: &[[u8; BagId::LEN]; 8], new: &[[u8; BagId::LEN]; 8]) -> bool {
    let differs = |old: &[u8; BagId::LEN], new: &[u8; BagId::LEN]| {
        u128::from_ne_bytes(*old) ^ u128::from_ne_bytes(*new)
    };
    old.iter().zip(new).fold(0, |all, (old, new)| all | differs(old, new)) == 0
}

/// The bytes that the counts of so many entries take at the beginning of both, if they are the same there. Of what is valid in one of them, that is the end of an entry: three numbers each, the
/// last byte of each number being the one without the top bit.
fn same_uses(old: &[u8], new: &[u8], entries: usize) -> Option<usize> {
    let mut ends = entries.saturating_mul(3);
    let mut len = 0usize;
    let ((old_blocks, _), (new_blocks, _)) = (old.as_chunks::<32>(), new.as_chunks::<32>());
    for (old, new) in old_blocks.iter().zip(new_blocks) {
        let here = usize::from(new.iter().map(|byte| u8::from(byte & 0x80 == 0)).sum::<u8>());
        if here >= ends || old != new {
            break;
        }
        ends = ends.saturating_sub(here);
        len = len.saturating_add(32);
    }
    let rest = old.get(len..).unwrap_or_default().iter().zip(new.get(len..).unwrap_or_default());
    for (old, new) in rest {
        if ends == 0 {
            break;
        }
        if old != new {
            return None;
        }
        ends = ends.saturating_sub(usize::from(new & 0x80 == 0));
        len = len.saturating_add(1);
    }
    (ends == 0).then_some(len)
}

/// The bytes that the counts of an entry take, if it is valid.
fn span(uses: &[u8]) -> usize {
    let ends = uses.iter().enumerate().filter(|(_, byte)| **byte & 0x80 == 0).map(|(at, _)| at);
    ends.take(3).last().map_or(uses.len(), |last| last.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Bags = BTreeMap<(u8, u8), (bool, u64, u64)>;

    fn uses(bags: &Bags) -> Vec<BagUse> {
        let one = |(&(first, last), &(is_tree, objects, bytes)): (&(u8, u8), &(bool, u64, u64))| {
            let mut bag = BagId([7; 16]);
            (bag.0[0], bag.0[15]) = (first, last);
            let kind = if is_tree { BagKind::Tree } else { BagKind::Data };
            BagUse { bag, kind, objects, bytes }
        };
        bags.iter().map(one).collect()
    }

    proptest! {
        #[test]
        fn what_is_new_is_found(kept: Bags, gone: Bags, more: Bags) {
            let [mut before, mut after] = [kept.clone(), kept];
            before.extend(gone);
            after.extend(more);
            let (before, after) = (uses(&before), uses(&after));
            let mut bucket = Kept::default();
            let mut found = Vec::new();
            bucket.replace(&encode(&before), &mut |one| found.push(one)).unwrap();
            prop_assert_eq!(&found, &before);
            found.clear();
            bucket.replace(&encode(&after), &mut |one| found.push(one)).unwrap();
            let new: Vec<_> = after.iter().filter(|one| !before.contains(one)).copied().collect();
            prop_assert_eq!(&found, &new);
            // Once it is known, nothing of it is decoded.
            prop_assert_eq!(bucket.replace(&encode(&after), &mut |_| ()).unwrap(), 0);
        }

        #[test]
        fn what_is_no_bucket_is_none_whatever_came_before(bags: Vec<u8>, uses: Vec<u8>, before: Bags) {
            let bytes = codec::encode(&Wire { bags: &bags, uses: &uses });
            let alone = decode(&bytes).is_ok();
            let mut bucket = Kept::default();
            bucket.replace(&encode(&tests::uses(&before)), &mut |_| ()).unwrap();
            prop_assert_eq!(bucket.replace(&bytes, &mut |_| ()).is_ok(), alone);
        }

        #[test]
        fn counts_that_are_cut_off_are_seen_beside_those_before(before: Bags, after: Bags, at: prop::sample::Index) {
            let (before, after) = (uses(&before), uses(&after));
            for (before, after) in [(&before, &after), (&after, &after)] {
                let bytes = encode(after);
                let wire: Wire<'_> = codec::decode(&bytes, "bag list", MAX_BUCKET).unwrap();
                if wire.uses.is_empty() {
                    continue;
                }
                let cut = codec::encode(&Wire { uses: &wire.uses[..at.index(wire.uses.len())], ..wire });
                let mut bucket = Kept::default();
                bucket.replace(&encode(before), &mut |_| ()).unwrap();
                prop_assert!(bucket.replace(&cut, &mut |_| ()).is_err());
            }
        }

        #[test]
        fn a_flipped_byte_is_seen_as_it_is_without_the_other(before: Bags, at: prop::sample::Index, with in 1..=255u8) {
            let good = encode(&uses(&before));
            let mut bytes = good.clone();
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            let alone = decode(&bytes);
            let mut bucket = Kept::default();
            bucket.replace(&good, &mut |_| ()).unwrap();
            prop_assert_eq!(bucket.replace(&bytes, &mut |_| ()).is_ok(), alone.is_ok());
        }
    }

    #[test]
    fn little_is_decoded_when_little_has_changed() {
        let mut bags: Bags =
            (0..=255).flat_map(|first| [((first, 1), (false, 3, 500)), ((first, 9), (true, 1, 1))]).collect();
        let mut bucket = Kept::default();
        assert_eq!(bucket.replace(&encode(&uses(&bags)), &mut |_| ()).unwrap(), 512);
        bags.remove(&(9, 1));
        bags.insert((200, 5), (false, 1, 1 << 40));
        let mut found = Vec::new();
        assert_eq!(bucket.replace(&encode(&uses(&bags)), &mut |one| found.push(one)).unwrap(), 1);
        assert_eq!(found.iter().map(|one| one.bytes).collect::<Vec<_>>(), [1 << 40]);
    }
}
