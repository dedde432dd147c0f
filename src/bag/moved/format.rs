//! The bytes of a record in `moved/`; `doc/format.md` describes the same in words.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::base::codec::{self, CodecError};
use crate::base::id::BagId;
use crate::base::varint;
use crate::entry::Place;

/// The largest record in bytes, opened.
pub const MAX_RECORD: usize = 64 << 20;

/// The largest sealed record in bytes.
pub const MAX_SEALED: u64 = 65 << 20;

/// Moves that one record holds at most, so that it stays far below [`MAX_RECORD`].
pub const MOST_MOVES: usize = 1 << 20;

/// An object that was copied. Both places have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Move {
    /// Where references say that it is.
    pub from: Place,
    /// Where it is, too.
    pub to: Place,
}

/// Why bytes are no such record.
#[derive(Debug, thiserror::Error)]
pub enum MovedError {
    /// Not the CBOR of one.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A move in it is impossible.
    #[error("it lists an impossible move")]
    Move,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    bags: Vec<BagId>,
    #[serde(with = "serde_bytes")]
    moves: Vec<u8>,
}

/// The plaintext of a record of these moves, in this order.
#[must_use]
pub fn encode(moves: &[Move]) -> Vec<u8> {
    let mut wire = Wire { bags: Vec::new(), moves: Vec::new() };
    let mut numbers = HashMap::new();
    let (mut from, mut to) = (None, None);
    for one in moves {
        put(&mut wire, &mut numbers, from.as_ref(), &one.from);
        varint::put(&mut wire.moves, u64::from(one.from.len));
        put(&mut wire, &mut numbers, to.as_ref(), &one.to);
        (from, to) = (Some(one.from), Some(one.to));
    }
    codec::encode(&wire)
}

/// Codes a place but for its length, by the one before.
fn put(wire: &mut Wire, numbers: &mut HashMap<BagId, u64>, last: Option<&Place>, place: &Place) {
    let same_bag = last.filter(|last| last.bag == place.bag);
    match same_bag {
        Some(last) if is_behind(last, place) => varint::put(&mut wire.moves, 0),
        Some(last) if end_of(last) == Some(place.offset) && place.start == 0 => {
            varint::put(&mut wire.moves, 1);
            varint::put(&mut wire.moves, u64::from(place.stored));
        }
        _ => {
            let next = u64::try_from(wire.bags.len()).unwrap_or(u64::MAX);
            let number = *numbers.entry(place.bag).or_insert_with(|| {
                wire.bags.push(place.bag);
                next
            });
            for value in [2, number, place.offset, place.stored.into(), place.start.into()] {
                varint::put(&mut wire.moves, value);
            }
        }
    }
}

fn is_behind(last: &Place, place: &Place) -> bool {
    (last.offset, last.stored) == (place.offset, place.stored) && behind(last) == Some(place.start)
}

fn behind(last: &Place) -> Option<u32> {
    last.start.checked_add(last.len)
}

fn end_of(last: &Place) -> Option<u64> {
    last.offset.checked_add(u64::from(last.stored))
}

/// The moves that these bytes list.
///
/// # Errors
/// When they are no such record.
pub fn decode(bytes: &[u8]) -> Result<Vec<Move>, MovedError> {
    let wire: Wire = codec::decode(bytes, "record of moved objects", MAX_RECORD)?;
    let mut rest = &wire.moves[..];
    let (mut moves, mut last): (Vec<Move>, Option<Move>) = (Vec::new(), None);
    while !rest.is_empty() {
        let one = take_move(&mut rest, &wire.bags, last.as_ref()).ok_or(MovedError::Move)?;
        moves.push(one);
        last = Some(one);
    }
    Ok(moves)
}

fn take_move(rest: &mut &[u8], bags: &[BagId], last: Option<&Move>) -> Option<Move> {
    let from = take(rest, bags, last.map(|last| &last.from))?;
    let len = varint::take_u32(rest)?;
    let to = take(rest, bags, last.map(|last| &last.to))?;
    let [from, to] = [from, to].map(|place| Place { len, ..place });
    (fits(&from) && fits(&to)).then_some(Move { from, to })
}

fn fits(place: &Place) -> bool {
    behind(place).is_some() && end_of(place).is_some()
}

fn take(rest: &mut &[u8], bags: &[BagId], last: Option<&Place>) -> Option<Place> {
    match varint::take(rest)? {
        0 => {
            let last = last?;
            Some(Place { start: behind(last)?, len: 0, ..*last })
        }
        1 => {
            let last = last?;
            let stored = varint::take_u32(rest)?;
            Some(Place { bag: last.bag, offset: end_of(last)?, stored, start: 0, len: 0 })
        }
        2 => {
            let bag = *bags.get(usize::try_from(varint::take(rest)?).ok()?)?;
            let offset = varint::take(rest)?;
            let (stored, start) = (varint::take_u32(rest)?, varint::take_u32(rest)?);
            Some(Place { bag, offset, stored, start, len: 0 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(bag: u8, offset: u64, stored: u32, start: u32, len: u32) -> Place {
        Place { bag: BagId([bag; 16]), offset, stored, start, len }
    }

    #[test]
    fn neighbours_take_few_bytes() {
        let moves = [
            Move { from: place(1, 32, 100, 0, 5), to: place(3, 32, 900, 0, 5) },
            Move { from: place(1, 32, 100, 5, 6), to: place(3, 32, 900, 5, 6) },
            Move { from: place(1, 132, 70, 0, 7), to: place(3, 932, 50, 0, 7) },
        ];
        let bytes = encode(&moves);
        assert_eq!(decode(&bytes).unwrap(), moves);
        assert!(bytes.len() < 70, "{}", bytes.len());
    }

    proptest! {
        #[test]
        fn there_and_back(all in prop::collection::vec((0u8..3, 0u64..500, 1u32..300, 0u32..9, 0u32..9), 0..20)) {
            let moves: Vec<_> = all.chunks_exact(2).map(|pair| {
                let (bag, offset, stored, start, len) = pair[0];
                let (to_bag, to_offset, to_stored, to_start, _) = pair[1];
                Move { from: place(bag, offset, stored, start, len), to: place(to_bag, to_offset, to_stored, to_start, len) }
            }).collect();
            prop_assert_eq!(decode(&encode(&moves)).unwrap(), moves);
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, moves: Vec<u8>) {
            let _ = decode(&bytes);
            let _ = decode(&codec::encode(&Wire { bags: vec![BagId([1; 16])], moves }));
        }
    }
}
