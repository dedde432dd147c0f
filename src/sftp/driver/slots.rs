//! Handles, foretold.
//!
//! A handle is known only when the server has answered, which costs a round trip before the first READ can leave. OpenSSH numbers its handles:
//! the one closed last is given out again, else the next number. So what the next OPEN of a channel gives can be told beforehand, and a READ on it can be sent
//! right behind. The answer is taken only if the handle turned out to be that one; else the request is made again.
//!
//! A READ that goes astray does no harm. A READDIR would: it takes entries away from another listing. So one is sent
//! ahead only where there is no other listing on the channel, or where the server has been found to number as
//! foretold; and once it has been found not to, nothing is foretold any more.

use std::collections::BTreeSet;

use bytes::Bytes;

/// The handles of one channel, as OpenSSH would number them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Numbers given back, the last one on top.
    free: Vec<u32>,
    /// The number after all that were given out.
    next: u32,
    /// What the OPEN that was sent last will give.
    last: Option<u32>,
    /// OPENs that are not answered yet.
    opening: usize,
    /// OPENDIRs that are not answered yet.
    listing: usize,
    /// Directories that are open.
    listed: BTreeSet<Bytes>,
    trust: Trust,
}

/// What is known of the server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Nothing.
    #[default]
    Untried,
    /// It works in order, and numbers as foretold.
    Proven,
    /// It does not, or we have lost count.
    Lost,
}

impl Slots {
    /// An OPEN or OPENDIR is sent: the handle that it will give.
    pub(super) fn opens(&mut self, is_dir: bool) -> Bytes {
        let number = self.free.pop().unwrap_or_else(|| {
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            number
        });
        self.last = Some(number);
        self.opening = self.opening.saturating_add(1);
        self.listing = self.listing.saturating_add(usize::from(is_dir));
        bytes_of(number)
    }

    /// A CLOSE is sent.
    pub(super) fn closes(&mut self, handle: &Bytes) {
        self.listed.remove(handle);
        match number_of(handle) {
            Some(number) => self.free.push(number),
            None => self.trust = Trust::Lost,
        }
    }

    /// The handle for a request behind the OPEN that was sent last, if it may be sent ahead.
    pub(super) fn foretell(&self, is_listing: bool) -> Option<Bytes> {
        let others = self.listing.saturating_add(self.listed.len()) > 1;
        let may = match self.trust {
            Trust::Proven => true,
            Trust::Untried => !is_listing || !others,
            Trust::Lost => false,
        };
        self.last.filter(|_| may).map(bytes_of)
    }

    /// An OPEN was answered. `in_order` tells whether the server works on requests in order.
    pub(super) fn opened(&mut self, foretold: &Bytes, handle: &Bytes, is_dir: bool, in_order: bool) {
        self.answered(is_dir);
        if is_dir {
            self.listed.insert(handle.clone());
        }
        if foretold != handle || !in_order {
            self.trust = Trust::Lost;
        } else if self.trust == Trust::Untried {
            self.trust = Trust::Proven;
        }
    }

    /// An OPEN failed, so its number is still free; those sent since then have got others than foretold.
    pub(super) fn not_opened(&mut self, foretold: &Bytes, is_dir: bool) {
        self.answered(is_dir);
        match number_of(foretold) {
            Some(number) if self.opening == 0 && self.last == Some(number) => {
                self.free.push(number);
                self.last = None;
            }
            _ => self.trust = Trust::Lost,
        }
    }

    fn answered(&mut self, is_dir: bool) {
        self.opening = self.opening.saturating_sub(1);
        self.listing = self.listing.saturating_sub(usize::from(is_dir));
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

    #[test]
    fn numbers_as_openssh_gives_them() {
        let mut slots = Slots::default();
        let [a, b, c] = [(); 3].map(|()| slots.opens(false));
        assert_eq!([&a, &b, &c].map(number_of), [Some(0), Some(1), Some(2)]);
        for handle in [&a, &b, &c] {
            slots.opened(handle, handle, false, true);
        }
        slots.closes(&a);
        slots.closes(&c);
        assert_eq!(slots.opens(false), c, "the one closed last");
        assert_eq!(slots.opens(true), a);
        assert_eq!(slots.foretell(true), Some(a));
        assert_eq!(number_of(&slots.opens(false)), Some(3));
    }

    #[test]
    fn listings_never_get_in_each_others_way() {
        let mut slots = Slots::default();
        let first = slots.opens(true);
        assert!(slots.foretell(true).is_some(), "there is no other to be hit");
        slots.opens(true);
        assert!(slots.foretell(true).is_none(), "it may hit the first");
        assert!(slots.foretell(false).is_some(), "reading takes nothing away");
        slots.opened(&first, &first, true, true);
        assert!(slots.foretell(true).is_some(), "the server numbers as expected");
    }

    #[test]
    fn a_server_that_numbers_otherwise_or_works_out_of_order() {
        for (handle, in_order) in
            [(bytes_of(7), true), (Bytes::from_static(b"x"), true), (bytes_of(0), false)]
        {
            let mut slots = Slots::default();
            let foretold = slots.opens(false);
            slots.opened(&foretold, &handle, false, in_order);
            slots.opens(false);
            assert!(slots.foretell(false).is_none());
        }
    }

    #[test]
    fn failures() {
        let mut slots = Slots::default();
        let first = slots.opens(true);
        slots.not_opened(&first, true);
        assert!(slots.foretell(false).is_none(), "nothing was opened");
        assert_eq!(slots.opens(true), first);
        assert!(slots.foretell(true).is_some());
        slots.opens(false);
        slots.not_opened(&first, true);
        assert!(slots.foretell(false).is_none(), "who knows which number the second gets");
    }
}
