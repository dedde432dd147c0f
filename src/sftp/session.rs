//! The state of one channel's SFTP session, without I/O: what is to be sent, what is outstanding, what came.
//!
//! The server's hello is not waited for: requests follow ours at once. OpenSSH works through its input in order, and
//! draft-02 asks no more of a client than to send INIT first.

use std::collections::{HashMap, VecDeque};

use bytes::{Buf, Bytes};

use super::fields::Malformed;
use super::packet::{Packets, Request, hello};
use super::reply::{Hello, Reply};

/// One channel's session. `T` is what the owner wants back with the reply to a request.
#[derive(Debug)]
pub struct Session<T> {
    outgoing: VecDeque<Bytes>,
    incoming: Packets,
    outstanding: HashMap<u32, Outstanding<T>>,
    next_id: u32,
    sent: u64,
    cost: u64,
    greeted: bool,
    hello: Option<Hello>,
}

#[derive(Debug)]
struct Outstanding<T> {
    ticket: T,
    cost: u64,
    order: u64,
}

impl<T> Default for Session<T> {
    fn default() -> Self {
        Self {
            outgoing: VecDeque::new(),
            incoming: Packets::default(),
            outstanding: HashMap::new(),
            next_id: 0,
            sent: 0,
            cost: 0,
            greeted: false,
            hello: None,
        }
    }
}

impl<T> Session<T> {
    /// Queues the packet that begins the session, once; tells whether this call did.
    pub fn greet(&mut self) -> bool {
        if self.greeted {
            return false;
        }
        self.greeted = true;
        self.outgoing.push_back(hello());
        true
    }

    /// Queues a request. `ticket` comes back with its reply.
    pub fn send(&mut self, request: &Request, ticket: T) {
        let mut id = self.next_id;
        while self.outstanding.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        self.next_id = id.wrapping_add(1);
        let cost = request.cost();
        self.sent = self.sent.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
        self.outstanding.insert(id, Outstanding { ticket, cost, order: self.sent });
        let (head, payload) = request.encode(id);
        self.outgoing.push_back(head);
        if !payload.is_empty() {
            self.outgoing.push_back(payload);
        }
    }

    /// Some of the bytes to be sent, if there are any.
    #[must_use]
    pub fn outgoing(&self) -> Option<&[u8]> {
        self.outgoing.front().map(|bytes| &bytes[..])
    }

    /// Notes that this many of [`Session::outgoing`]'s bytes are sent.
    pub fn advance(&mut self, bytes: usize) {
        if let Some(front) = self.outgoing.front_mut() {
            front.advance(bytes.min(front.len()));
            if front.is_empty() {
                self.outgoing.pop_front();
            }
        }
    }

    /// Takes bytes as they came and adds the replies that are complete.
    ///
    /// # Errors
    /// When the server breaks the protocol: the channel is of no use then, replies added before are valid.
    pub fn receive(&mut self, bytes: &[u8], replies: &mut Vec<(T, Reply)>) -> Result<(), Malformed> {
        self.incoming.push(bytes);
        while let Some(packet) = self.incoming.next_packet().map_err(|error| self.meaning(error))? {
            match (Reply::decode(packet)?, &self.hello) {
                ((_, Reply::Hello(hello)), None) if self.greeted => {
                    if hello.version < 3 {
                        return Err(Malformed("its version is below 3"));
                    }
                    self.hello = Some(hello);
                }
                ((_, Reply::Hello(_)), _) => return Err(Malformed("a hello out of place")),
                ((_, _), None) => return Err(Malformed("it does not begin with a hello")),
                ((id, reply), Some(_)) => {
                    let Some(done) = self.outstanding.remove(&id) else {
                        return Err(Malformed("a reply to no request"));
                    };
                    self.cost = self.cost.saturating_sub(done.cost);
                    replies.push((done.ticket, reply));
                }
            }
        }
        Ok(())
    }

    /// What a packet of impossible length means: letters make one, and where the greeting should be nobody else writes any.
    fn meaning(&self, error: Malformed) -> Malformed {
        match self.hello {
            Some(_) => error,
            None => Malformed(
                "something else comes before its greeting: the start files of the login shell there must print nothing",
            ),
        }
    }

    /// The server's hello, once it is there.
    #[must_use]
    pub fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// How many replies are awaited, the hello among them.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        let hello = usize::from(self.greeted && self.hello.is_none());
        self.outstanding.len().saturating_add(hello)
    }

    /// What was handed over with each request that is outstanding, in no order.
    pub fn tickets(&self) -> impl Iterator<Item = &T> {
        self.outstanding.values().map(|outstanding| &outstanding.ticket)
    }

    /// The [cost](Request::cost) of what is outstanding.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Ends the session: the tickets of all that is outstanding, in the order it was sent.
    #[must_use]
    pub fn into_tickets(self) -> Vec<T> {
        let mut all: Vec<_> = self.outstanding.into_values().collect();
        all.sort_by_key(|outstanding| outstanding.order);
        all.into_iter().map(|outstanding| outstanding.ticket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sftp::reply::{Code, Status};

    const HELLO: &[u8] = &[0, 0, 0, 5, 2, 0, 0, 0, 3];

    fn status(id: u8) -> [u8; 13] {
        [0, 0, 0, 9, 101, 0, 0, 0, id, 0, 0, 0, 0]
    }

    fn session() -> Session<&'static str> {
        let mut session = Session::default();
        assert!(session.greet());
        assert!(!session.greet());
        session.send(&Request::Remove { path: b"a".to_vec() }, "a");
        session.send(&Request::Remove { path: b"b".to_vec() }, "b");
        session
    }

    #[test]
    fn requests_follow_the_hello_at_once_and_replies_find_them_in_any_order() {
        let mut session = session();
        assert_eq!(session.outstanding(), 3);
        let mut sent = 0;
        while let Some(bytes) = session.outgoing() {
            let some = bytes.len().min(7);
            sent += some;
            session.advance(some);
        }
        assert_eq!(sent, 9 + 2 * 14);
        let mut replies = Vec::new();
        let bytes = [HELLO, &status(1), &status(0)].concat();
        for byte in bytes {
            session.receive(&[byte], &mut replies).unwrap();
        }
        let ok = Reply::Status(Status { code: Code::Ok, message: String::new() });
        assert_eq!(replies, [("b", ok.clone()), ("a", ok)]);
        assert_eq!((session.outstanding(), session.cost()), (0, 0));
    }

    #[test]
    fn a_server_that_breaks_the_protocol() {
        let mut replies = Vec::new();
        assert!(session().receive(&status(0), &mut replies).is_err(), "no hello");
        assert!(session().receive(&[HELLO, HELLO].concat(), &mut replies).is_err(), "two of them");
        assert!(session().receive(&[HELLO, &status(7)].concat(), &mut replies).is_err(), "an unknown id");
        assert!(session().receive(&[0, 0xff, 0, 0], &mut replies).is_err(), "a huge packet");
        assert!(session().receive(&[0, 0, 0, 5, 2, 0, 0, 0, 2], &mut replies).is_err(), "version 2");
        let later = session().receive(&[HELLO, b"late"].concat(), &mut replies).unwrap_err();
        assert!(!later.0.contains("login shell"), "{later}");
        assert!(replies.is_empty());
    }

    #[test]
    fn a_login_shell_that_prints_something() {
        for text in [&b"Welcome!\n"[..], b"\n\n\nmotd", b"\x1b[1mhello", b"stdin: is not a tty"] {
            let error = session().receive(text, &mut Vec::new()).unwrap_err();
            assert!(
                error.0.contains("the start files of the login shell there must print nothing"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_outstanding_comes_back_in_order() {
        assert_eq!(session().into_tickets(), ["a", "b"]);
    }
}
