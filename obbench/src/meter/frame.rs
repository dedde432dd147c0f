//! Where packets begin in a stream of bytes. Bodies are skipped, never looked at.

use super::event;

/// The head of an extended request: length, type, id, and a name of up to 40 bytes.
const MOST: usize = 4 + 1 + 4 + 4 + 40;
const EXTENDED: u8 = 200;

/// Finds packets in one direction of a channel.
#[derive(Default)]
pub(super) struct Frames {
    head: Vec<u8>,
    /// Bytes of the current packet that are still to come, once its head is known.
    body: usize,
    lost: bool,
}

/// A packet whose head is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub kind: u8,
    /// With the length field.
    pub bytes: u32,
}

impl Frames {
    /// Takes the next bytes of the stream and reports the packets whose heads they complete. After a length that
    /// cannot be, nothing is reported any more.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut found: impl FnMut(Packet)) {
        while !bytes.is_empty() && !self.lost {
            if self.body > 0 {
                let skipped = self.body.min(bytes.len());
                self.body -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let Some(wanted) = self.wanted() else {
                self.lost = true;
                return;
            };
            let taken = wanted.saturating_sub(self.head.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(taken);
            self.head.extend_from_slice(head);
            bytes = rest;
            if self.wanted().is_some_and(|wanted| self.head.len() >= wanted)
                && let Some(packet) = self.packet()
            {
                let whole = usize::try_from(packet.bytes).unwrap_or(usize::MAX);
                self.body = whole.saturating_sub(self.head.len());
                self.head.clear();
                found(packet);
            }
        }
    }

    fn length(&self) -> Option<u32> {
        self.head.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// How long the head is, as far as that is known yet; `None` where the length cannot be.
    fn wanted(&self) -> Option<usize> {
        let Some(length) = self.length() else {
            return Some(5);
        };
        let whole = usize::try_from(length).ok()?.checked_add(4)?;
        if length == 0 || length > 1 << 28 {
            return None;
        }
        match self.head.get(4) {
            Some(&EXTENDED) => Some(whole.min(MOST)),
            _ => Some(5),
        }
    }

    fn packet(&self) -> Option<Packet> {
        let bytes = self.length()?.checked_add(4)?;
        let kind = *self.head.get(4)?;
        if kind != EXTENDED {
            return Some(Packet { kind, bytes });
        }
        let name = self.head.get(9..13).and_then(|length| {
            let length = u32::from_be_bytes(length.try_into().ok()?);
            self.head.get(13..13usize.checked_add(usize::try_from(length).ok()?)?)
        });
        Some(Packet { kind: event::extension(name.unwrap_or_default()), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(body.len() + 1).expect("short").to_be_bytes().to_vec();
        bytes.push(kind);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn finds_the_same_packets_however_the_stream_is_cut() {
        let mut fsync = vec![0, 0, 0, 1, 0, 0, 0, 17];
        fsync.extend_from_slice(b"fsync@openssh.com\0\0\0\x04hand");
        let stream =
            [packet(1, &[0, 0, 0, 3]), packet(6, &[9; 1000]), packet(200, &fsync), packet(4, b"")].concat();
        let wanted = [(1, 9), (6, 1005), (event::extension(b"fsync@openssh.com"), 38), (4, 5)];
        for size in [1, 2, 3, 5, 7, 64, 1 << 20] {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece, |packet| found.push((packet.kind, packet.bytes)));
            }
            assert_eq!(found, wanted, "in pieces of {size}");
        }
    }

    #[test]
    fn gives_up_on_what_is_no_packet() {
        let mut frames = Frames::default();
        let mut found = 0;
        frames.push(&[0, 0, 0, 0, 1, 0, 0, 0, 1, 4], |_| found += 1);
        assert_eq!(found, 0);
    }
}
