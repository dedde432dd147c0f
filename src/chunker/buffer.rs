//! From pushed bytes to chunks.

use super::cutter::Cutter;

/// Collects bytes and hands out chunks. Holds at most two chunks of the largest size and the room that is asked for.
///
/// Bytes are read to where they are cut; those that wait for more are moved to the front when the room behind them is too small.
#[derive(Debug)]
pub struct Chunker {
    cutter: Cutter,
    /// Those that wait, and old ones around them.
    buffer: Vec<u8>,
    /// Where those that wait begin and end.
    start: usize,
    end: usize,
}

impl Chunker {
    /// A chunker with nothing in it.
    #[must_use]
    pub fn new(cutter: Cutter) -> Self {
        Self { cutter, buffer: Vec::new(), start: 0, end: 0 }
    }

    /// Room for so many bytes, to be written to and then [taken in](Self::take_in).
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let most = self.cutter.max().saturating_mul(2).saturating_add(len);
        if self.end.saturating_add(len) > most {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.pending());
        }
        let end = self.end.saturating_add(len);
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.buffer.get_mut(self.end..end).unwrap_or_default()
    }

    /// Takes in the first bytes of the [`room`](Self::room), and hands out the chunks that are now certain.
    pub fn take_in(&mut self, len: usize, emit: &mut dyn FnMut(&[u8])) {
        self.end = self.end.saturating_add(len).min(self.buffer.len());
        while self.emit_one(false, emit) {}
    }

    /// Takes in a copy of bytes, and hands out the chunks that are now certain.
    pub fn push(&mut self, data: &[u8], emit: &mut dyn FnMut(&[u8])) {
        for data in data.chunks(self.cutter.max()) {
            self.room(data.len()).copy_from_slice(data);
            self.take_in(data.len(), emit);
        }
    }

    /// Hands out what is left, and is ready for another file.
    pub fn finish(&mut self, emit: &mut dyn FnMut(&[u8])) {
        while self.emit_one(true, emit) {}
        self.clear();
    }

    /// Forgets what is left (of a file that cannot be read on), and is ready for another file.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Bytes taken in and not yet handed out.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    fn emit_one(&mut self, last: bool, emit: &mut dyn FnMut(&[u8])) -> bool {
        let waiting = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some(end) = self.cutter.cut(waiting, last) else { return false };
        emit(waiting.get(..end).unwrap_or(waiting));
        self.start = self.start.saturating_add(end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunker::Limits;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const SMALL: Limits = Limits { min: 64, avg: 256, max: 1024 };

    /// Bytes that look random: BLAKE3's output for `seed`.
    fn noise(seed: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new_keyed(&[seed; 32]).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn cutter(seed: u8) -> Cutter {
        let bytes = noise(seed, 2048);
        let (numbers, _) = bytes.as_chunks::<8>();
        let mut gear = [0; 256];
        gear.iter_mut().zip(numbers).for_each(|(number, bytes)| *number = u64::from_le_bytes(*bytes));
        Cutter::new(SMALL, gear)
    }

    fn chunks(cutter: &Cutter, pushes: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut chunker = Chunker::new(cutter.clone());
        let mut chunks = Vec::new();
        let mut emit = |chunk: &[u8]| chunks.push(chunk.to_vec());
        for data in pushes {
            chunker.push(data, &mut emit);
            assert!(chunker.buffer.len() <= 3 * cutter.max());
        }
        chunker.finish(&mut emit);
        assert_eq!(chunker.pending(), 0);
        chunks
    }

    /// Random bytes with runs of zeros in them.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![(any::<u8>(), 0..3000_usize).prop_map(|(seed, len)| noise(seed, len)), {
            (0..3000_usize).prop_map(|len| vec![0; len])
        }];
        proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn chunks_are_the_input_whatever_the_pushes(data in contents(), cuts in proptest::collection::vec(1..4000_usize, 1..20)) {
            let cutter = cutter(1);
            let whole = chunks(&cutter, &[&data]);
            prop_assert_eq!(&whole.concat(), &data);
            let mut pushes = Vec::new();
            let mut rest = &data[..];
            for len in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (push, after) = rest.split_at(rest.len().min(*len));
                pushes.push(push);
                rest = after;
            }
            prop_assert_eq!(&chunks(&cutter, &pushes), &whole);
            let max = cutter.max();
            prop_assert!(whole.iter().all(|chunk| chunk.len() <= max && !chunk.is_empty()));
            if let Some((_, but_last)) = whole.split_last() {
                prop_assert!(but_last.iter().all(|chunk| chunk.len() >= 64));
            }
        }

        #[test]
        fn an_insertion_changes_few_chunks(seed: u8, insert in proptest::collection::vec(any::<u8>(), 1..50), at in 0..2000_usize) {
            let cutter = cutter(1);
            let data = noise(seed, 50_000);
            let before = chunks(&cutter, &[&data]);
            let after = chunks(&cutter, &[&data[..at], &insert, &data[at..]]);
            let known: HashSet<_> = before.iter().collect();
            let new = after.iter().filter(|chunk| !known.contains(chunk)).count();
            prop_assert!(before.len() > 100);
            prop_assert!(new <= 30, "{new} new chunks");
        }
    }

    #[test]
    fn another_gear_table_cuts_elsewhere() {
        let data = noise(0, 100_000);
        let one: HashSet<_> = chunks(&cutter(1), &[&data]).into_iter().collect();
        let two = chunks(&cutter(2), &[&data]);
        assert!(two.iter().filter(|chunk| one.contains(*chunk)).count() * 20 < two.len());
    }

    #[test]
    fn the_mean_is_near_the_average() {
        let count = chunks(&cutter(1), &[&noise(0, 1 << 20)]).len();
        assert!((3000..6000).contains(&count), "{count}");
    }

    #[test]
    fn a_cleared_chunker_begins_anew() {
        let mut chunker = Chunker::new(cutter(1));
        chunker.push(b"lost", &mut |_| panic!("too early"));
        chunker.clear();
        let mut got = Vec::new();
        chunker.push(b"kept", &mut |_| panic!("too early"));
        chunker.finish(&mut |chunk| got.extend_from_slice(chunk));
        assert_eq!(got, b"kept");
    }

    #[test]
    fn bytes_read_into_the_room_are_cut_as_those_that_were_pushed() {
        let data = noise(3, 30_000);
        let cutter = cutter(1);
        for len in [1, 100, 512, 1000, 4096] {
            let mut chunker = Chunker::new(cutter.clone());
            let mut got = Vec::new();
            let mut emit = |chunk: &[u8]| got.push(chunk.to_vec());
            for piece in data.chunks(len) {
                // There may be more room than bytes.
                chunker.room(4096)[..piece.len()].copy_from_slice(piece);
                chunker.take_in(piece.len(), &mut emit);
                assert!(chunker.buffer.len() <= 2 * cutter.max() + 4096);
            }
            chunker.finish(&mut emit);
            assert_eq!(got, chunks(&cutter, &[&data]), "{len} at a time");
        }
    }

    /// Ends of chunks computed by another program, from the text of `doc/format.md`.
    #[test]
    fn golden() {
        let key = blake3::derive_key("kitbag 2026-11 v1 chunker gear", &[1; 32]);
        let mut bytes = [0; 2048];
        blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut bytes);
        let numbers = bytes.as_chunks::<8>().0;
        let mut gear = [0; 256];
        gear.iter_mut().zip(numbers).for_each(|(number, bytes)| *number = u64::from_le_bytes(*bytes));
        let random = |len: usize| -> Vec<u8> {
            let step = |x: &u64| {
                Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
            };
            let numbers = std::iter::successors(Some(1_u64), step).skip(1);
            numbers.map(|x| x.to_be_bytes()[0]).take(len).collect()
        };
        let data = [random(4000), vec![0; 3000], random(3001)].concat();
        let lengths: Vec<_> = chunks(&Cutter::new(SMALL, gear), &[&data]).iter().map(Vec::len).collect();
        let golden = [
            418, 534, 283, 114, 265, 346, 275, 254, 234, 353, 169, 328, 290, 1024, 1024, 1024, 483, 534, 283,
            114, 265, 346, 275, 254, 234, 278,
        ];
        assert_eq!(lengths, golden);
    }
}
