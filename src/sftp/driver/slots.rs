//! Handles, foretold.
//!
//! A handle is known only when the server has answered, which costs a round trip before the first READ can leave. OpenSSH numbers its handles:
//! the one closed last is given out again, else the next number. So what the next OPEN of a channel gives can be told beforehand, if those
//! before it succeed, and a READ on it can be sent right behind. The answer is taken only if the handle turned out to be that one; else the
//! request is made again.
//!
//! A READ that goes astray does no harm. A READDIR may: it takes entries away from another listing. But handles foretold for what is
//! open at the same time differ, so a listing that loses entries has itself got another handle than foretold: who finds
//! that lists once more, when the server, which works in order, has dealt with all that went astray before. And once the server has been found to number otherwise, nothing is foretold any more.

use std::collections::VecDeque;

use bytes::Bytes;

/// The handles of one channel, as OpenSSH would number them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// As of the last answer.
    server: Numbers,
    /// What has been sent since, and is not answered.
    sent: VecDeque<Change>,
    /// The server does not work in order, or numbers otherwise.
    is_lost: bool,
}

/// Numbers that were given out and given back.
#[derive(Debug, Default, Clone)]
struct Numbers {
    /// Given back, the last one on top.
    free: Vec<u32>,
    /// The one after all that were given out.
    next: u32,
}

impl Numbers {
    fn open(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            number
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Open,
    Close(u32),
}

impl Slots {
    /// An OPEN or OPENDIR is sent.
    pub(super) fn opens(&mut self) {
        self.sent.push_back(Change::Open);
    }

    /// A CLOSE is sent.
    pub(super) fn closes(&mut self, handle: &Bytes) {
        match number_of(handle) {
            Some(number) => self.sent.push_back(Change::Close(number)),
            None => self.is_lost = true,
        }
    }

    /// The handle that the OPEN sent last will bring, for a request behind it.
    pub(super) fn foretell(&self) -> Option<Bytes> {
        if self.is_lost {
            return None;
        }
        let mut numbers = self.server.clone();
        let mut last = None;
        for change in &self.sent {
            match change {
                Change::Open => last = Some(numbers.open()),
                Change::Close(number) => numbers.free.push(*number),
            }
        }
        last.map(bytes_of)
    }

    /// An OPEN was answered, with this handle. `in_order` tells whether the server works on requests in order.
    pub(super) fn opened(&mut self, handle: &Bytes, in_order: bool) {
        let is_next = self.sent.pop_front() == Some(Change::Open);
        let number = self.server.open();
        self.is_lost |= !is_next || !in_order || number_of(handle) != Some(number);
    }

    /// An OPEN failed: its number is still free.
    pub(super) fn not_opened(&mut self) {
        self.is_lost |= self.sent.pop_front() != Some(Change::Open);
    }

    /// A CLOSE was answered.
    pub(super) fn closed(&mut self) {
        match self.sent.pop_front() {
            Some(Change::Close(number)) => self.server.free.push(number),
            _ => self.is_lost = true,
        }
    }
}

fn bytes_of(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn number_of(handle: &Bytes) -> Option<u32> {
    <[u8; 4]>::try_from(&handle[..]).ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An OPEN is sent; what is foretold of it.
    fn open(slots: &mut Slots) -> Option<u32> {
        slots.opens();
        slots.foretell().as_ref().and_then(number_of)
    }

    #[test]
    fn numbers_as_openssh_gives_them() {
        let mut slots = Slots::default();
        assert_eq!([(); 3].map(|()| open(&mut slots)), [Some(0), Some(1), Some(2)]);
        for number in 0..3 {
            slots.opened(&bytes_of(number), true);
        }
        slots.closes(&bytes_of(0));
        slots.closes(&bytes_of(2));
        assert_eq!(open(&mut slots), Some(2), "the one closed last");
        assert_eq!(open(&mut slots), Some(0));
        slots.closed();
        slots.closed();
        slots.opened(&bytes_of(2), true);
        assert_eq!(open(&mut slots), Some(3));
        slots.opened(&bytes_of(0), true);
        slots.opened(&bytes_of(3), true);
        assert_eq!(open(&mut slots), Some(4));
    }

    #[test]
    fn a_server_that_numbers_otherwise_or_works_out_of_order() {
        for (handle, in_order) in
            [(bytes_of(7), true), (Bytes::from_static(b"x"), true), (bytes_of(0), false)]
        {
            let mut slots = Slots::default();
            assert_eq!(open(&mut slots), Some(0));
            slots.opened(&handle, in_order);
            assert_eq!(open(&mut slots), None);
        }
        let mut slots = Slots::default();
        open(&mut slots);
        slots.closes(&bytes_of(5));
        slots.closed();
        assert_eq!(open(&mut slots), None, "the later request was answered first");
    }

    #[test]
    fn what_fails_moves_those_behind_it_up() {
        let mut slots = Slots::default();
        assert_eq!([(); 2].map(|()| open(&mut slots)), [Some(0), Some(1)]);
        slots.not_opened();
        assert_eq!(open(&mut slots), Some(1));
        slots.opened(&bytes_of(0), true);
        slots.opened(&bytes_of(1), true);
        assert_eq!(open(&mut slots), Some(2));
    }
}
