//! Many references in few bytes.
//!
//! A page names each bag once; a reference then costs its 32-byte id and, when it follows the one before it in the same
//! block or in the next, two or three bytes:
//!
//! | form | meaning | numbers that follow |
//! | --- | --- | --- |
//! | 0 | same block, right behind the reference before | length |
//! | 1 | the block right behind, from its beginning | sealed length, length |
//! | 2 | anywhere | bag's number in the table, offset, sealed length, start, length |

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::base::id::{BagId, ObjectId};
use crate::base::varint;
use crate::entry::{Place, Reference};

/// References as they stand in a page, a list or a record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Places {
    bags: Vec<BagId>,
    #[serde(with = "serde_bytes")]
    ids: Vec<u8>,
    #[serde(with = "serde_bytes")]
    places: Vec<u8>,
}

/// Codes references one after another.
#[derive(Debug, Default)]
pub struct PlacesWriter {
    out: Places,
    numbers: HashMap<BagId, u64>,
    last: Option<Place>,
}

/// Decodes references in the order in which they were written.
#[derive(Debug)]
pub struct PlacesReader<'a> {
    bags: &'a [BagId],
    ids: &'a [u8],
    places: &'a [u8],
    last: Option<Place>,
}

/// The references ended too early, or one of them is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a reference is missing or impossible")]
pub struct BadPlaces;

/// The largest sealed block that a reference may name, in bytes: what a reader is willing to fetch for one object.
pub const MAX_BLOCK: u32 = 16 << 20;

/// The largest object, in bytes.
pub const MAX_OBJECT: u32 = 16 << 20;

impl PlacesWriter {
    /// Adds a reference.
    pub fn push(&mut self, reference: &Reference) {
        let place = reference.place;
        self.out.ids.extend_from_slice(reference.id.as_bytes());
        let out = &mut self.out.places;
        let same_block = |last: &Place| {
            last.bag == place.bag
                && last.offset == place.offset
                && last.stored == place.stored
                && last.start.checked_add(last.len) == Some(place.start)
        };
        let next_block = |last: &Place| {
            last.bag == place.bag
                && last.offset.checked_add(u64::from(last.stored)) == Some(place.offset)
                && place.start == 0
        };
        match &self.last {
            Some(last) if same_block(last) => varint::put(out, 0),
            Some(last) if next_block(last) => {
                varint::put(out, 1);
                varint::put(out, u64::from(place.stored));
            }
            _ => {
                let next = u64::try_from(self.out.bags.len()).unwrap_or(u64::MAX);
                let number = *self.numbers.entry(place.bag).or_insert_with(|| {
                    self.out.bags.push(place.bag);
                    next
                });
                varint::put(out, 2);
                varint::put(out, number);
                varint::put(out, place.offset);
                varint::put(out, u64::from(place.stored));
                varint::put(out, u64::from(place.start));
            }
        }
        varint::put(out, u64::from(place.len));
        self.last = Some(place);
    }

    /// The coded references.
    #[must_use]
    pub fn finish(self) -> Places {
        self.out
    }
}

impl Places {
    /// Reads them from the first.
    #[must_use]
    pub fn reader(&self) -> PlacesReader<'_> {
        PlacesReader { bags: &self.bags, ids: &self.ids, places: &self.places, last: None }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len() / ObjectId::LEN
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// All of them.
    ///
    /// # Errors
    /// When one is missing or impossible, or bytes are left over.
    pub fn to_vec(&self) -> Result<Vec<Reference>, BadPlaces> {
        let mut reader = self.reader();
        let all = (0..self.len()).map(|_| reader.take()).collect::<Result<Vec<_>, _>>()?;
        reader.finish()?;
        Ok(all)
    }

    /// Codes all of `references`.
    #[must_use]
    pub fn from_slice(references: &[Reference]) -> Self {
        let mut writer = PlacesWriter::default();
        references.iter().for_each(|reference| writer.push(reference));
        writer.finish()
    }
}

impl PlacesReader<'_> {
    /// The next reference.
    ///
    /// # Errors
    /// When there is none, or it is impossible (unknown bag, numbers out of range).
    pub fn take(&mut self) -> Result<Reference, BadPlaces> {
        let (id, rest) = self.ids.split_at_checked(ObjectId::LEN).ok_or(BadPlaces)?;
        self.ids = rest;
        let id = ObjectId::from_slice(id).ok_or(BadPlaces)?;
        let place = self.take_place().ok_or(BadPlaces)?;
        self.last = Some(place);
        Ok(Reference { id, place })
    }

    fn take_place(&mut self) -> Option<Place> {
        let bytes = &mut self.places;
        let mut place = match varint::take(bytes)? {
            0 => {
                let last = self.last?;
                Place { start: last.start.checked_add(last.len)?, ..last }
            }
            1 => {
                let last = self.last?;
                let offset = last.offset.checked_add(u64::from(last.stored))?;
                Place { offset, stored: varint::take_u32(bytes)?, start: 0, ..last }
            }
            2 => {
                let number = usize::try_from(varint::take(bytes)?).ok()?;
                Place {
                    bag: *self.bags.get(number)?,
                    offset: varint::take(bytes)?,
                    stored: varint::take_u32(bytes)?,
                    start: varint::take_u32(bytes)?,
                    len: 0,
                }
            }
            _ => return None,
        };
        place.len = varint::take_u32(bytes)?;
        let possible = place.stored <= MAX_BLOCK
            && place.len <= MAX_OBJECT
            && place.start.checked_add(place.len).is_some()
            && place.offset.checked_add(u64::from(place.stored)).is_some();
        possible.then_some(place)
    }

    /// Confirms that nothing is left.
    ///
    /// # Errors
    /// When something is.
    pub fn finish(self) -> Result<(), BadPlaces> {
        if self.ids.is_empty() && self.places.is_empty() { Ok(()) } else { Err(BadPlaces) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(bag: u8, offset: u64, stored: u32, start: u32, len: u32) -> Reference {
        let place = Place { bag: BagId([bag; 16]), offset, stored, start, len };
        Reference { id: ObjectId([bag; 32]), place }
    }

    #[test]
    fn neighbours_cost_two_bytes() {
        let first = reference(1, 32, 1000, 0, 100);
        let mut one = PlacesWriter::default();
        one.push(&first);
        let one = one.finish();
        let two = Places::from_slice(&[first, reference(1, 32, 1000, 100, 90)]);
        assert_eq!(two.places.len() - one.places.len(), 2);
    }

    proptest! {
        #[test]
        fn there_and_back(seeds in prop::collection::vec((0u8..3, 0u64..5000, 1u32..3000, 0u32..100, 0u32..100), 0..40)) {
            let references: Vec<_> = seeds.into_iter().map(|(b, o, s, t, l)| reference(b, o, s, t, l)).collect();
            prop_assert_eq!(Places::from_slice(&references).to_vec(), Ok(references));
        }

        #[test]
        fn any_bytes_are_survived(ids: Vec<u8>, places: Vec<u8>) {
            let places = Places { bags: vec![BagId([7; 16])], ids, places };
            let _ = places.to_vec();
        }
    }
}
