//! Bytes that go in at one end and out at the other.

/// A queue of bytes that is contiguous at any time.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// Those that are there, and old ones around them.
    bytes: Vec<u8>,
    /// Where those that are there begin and end.
    start: usize,
    end: usize,
}

/// Bytes at the front that are gone make room only in portions of this size.
const SLACK: usize = 256 << 10;

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is there, the oldest first.
    pub(super) fn front(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(bytes);
        self.end = self.bytes.len();
    }

    /// Room for so many more, to be written to and then [added](Self::add).
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.end.saturating_add(len);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes.get_mut(self.end..end).unwrap_or_default()
    }

    /// Takes in the first bytes of the [`room`](Self::room) behind those that are there.
    pub(super) fn add(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.bytes.len());
    }

    /// Forgets the oldest `count` bytes, or all if there are fewer.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start >= SLACK {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end = self.end.saturating_sub(self.start);
            self.start = 0;
        }
    }

    /// Moves as much as fits to `target`, and says how much that is.
    pub(super) fn take(&mut self, target: &mut [u8]) -> usize {
        let count = self.len().min(target.len());
        if let (Some(to), Some(from)) = (target.get_mut(..count), self.front().get(..count)) {
            to.copy_from_slice(from);
        }
        self.consume(count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out() {
        let mut buffer = Buffer::default();
        let mut expected = Vec::new();
        let mut got = Vec::new();
        for round in 0..200_u8 {
            let chunk = vec![round; 10_000];
            if round % 3 == 0 {
                buffer.room(12_000)[..10_000].copy_from_slice(&chunk);
                buffer.add(10_000);
            } else {
                buffer.push(&chunk);
            }
            expected.extend(chunk);
            let mut target = [0; 7_001];
            let count = buffer.take(&mut target);
            got.extend_from_slice(&target[..count]);
        }
        assert!(buffer.bytes.len() < buffer.len() + SLACK + 12_000);
        got.extend_from_slice(buffer.front());
        buffer.consume(usize::MAX);
        assert!(buffer.is_empty());
        assert_eq!(got, expected);
    }
}
