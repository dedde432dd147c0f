//! What becomes of the bytes that come in.

use std::time::Duration;

use super::channel::{Ticket, opens};
use super::{Driver, Standing};
use crate::sftp::error::RequestError;
use crate::sftp::fields::Malformed;
use crate::sftp::handle::Handle;
use crate::sftp::link::{CONTROL, ChannelId, LinkError, LinkErrorKind};
use crate::sftp::packet::{Kind, Request, extension};
use crate::sftp::queue::{Place, Submission, Value, add};
use crate::sftp::reply::{Code, Limits, Reply};

impl Driver {
    /// Takes bytes of a channel and delivers the replies in them. A channel that breaks the protocol is lost;
    /// so is the link with the control channel.
    pub(super) fn receive(
        &mut self,
        standing: &mut Standing,
        id: ChannelId,
        (bytes, now): (&[u8], Duration),
    ) -> Result<(), LinkError> {
        let Some(channel) = standing.channels.get_mut(&id) else {
            return Ok(());
        };
        add(&self.shared.counters.bytes_down, bytes.len());
        channel.heard = now;
        let new = channel.session.hello().is_none();
        let mut replies = Vec::new();
        let mut received = channel.session.receive(bytes, &mut replies);
        if new && let Some(hello) = channel.session.hello() {
            self.greeted = true;
            self.shared.set_standing(true);
            self.shared.learn_hello(hello);
        }
        for (ticket, reply) in replies {
            let submission = match ticket {
                Ticket::Request(submission) => submission,
                Ticket::Limits => {
                    if let Reply::Extended(answer) = reply
                        && let Ok(limits) = Limits::decode(answer)
                    {
                        self.shared.learn_limits(limits);
                    }
                    continue;
                }
                Ticket::Pulse => {
                    standing.is_asked = false;
                    continue;
                }
            };
            self.answered = true;
            self.trouble = None;
            standing.pace.answered(submission.request.cost(), now, standing.distance.nearest());
            let kind = submission.request.kind();
            let place = Place { epoch: self.epoch, channel: id };
            let result = self.value(&submission, place, reply);
            if let Some(channel) = standing.channels.get_mut(&id) {
                match &result {
                    Ok(Value::Handle(handle)) => {
                        let in_order = !self.lacks(extension::LIMITS);
                        channel.slots.opened(&handle.bytes(), in_order);
                    }
                    _ if opens(kind) => {
                        channel.not_opened();
                        channel.slots.not_opened();
                    }
                    _ if kind == Kind::Close => channel.slots.closed(),
                    _ => {}
                }
            }
            if let Err(RequestError::Malformed(malformed)) = &result {
                received = received.and(Err(*malformed));
            }
            submission.answer(place, result);
        }
        let Err(malformed) = received else {
            return Ok(());
        };
        if id == CONTROL {
            return Err(LinkError::new(LinkErrorKind::Protocol, malformed));
        }
        standing.cap = standing.cap.saturating_sub(1);
        self.lose_channel(standing, id, &malformed.to_string());
        Ok(())
    }

    /// A reply as the answer to a request, if it is one.
    fn value(&self, submission: &Submission, place: Place, reply: Reply) -> Result<Value, RequestError> {
        let request = &submission.request;
        let value = match (request.kind(), reply) {
            (kind, Reply::Status(status)) => match (kind, status.code) {
                (
                    Kind::Close
                    | Kind::Write
                    | Kind::Fsync
                    | Kind::Remove
                    | Kind::MakeDir
                    | Kind::Rename
                    | Kind::PosixRename,
                    Code::Ok,
                ) => Value::Done,
                (_, Code::Ok) => return Err(Malformed("success without an answer").into()),
                _ => return Err(RequestError::Status(status)),
            },
            (kind, Reply::Handle(bytes)) if opens(kind) => {
                Value::Handle(Handle::new(self.shared.clone(), place, bytes))
            }
            (Kind::Read, Reply::Data(data)) => match request {
                Request::Read { len, .. } if data.len() <= usize::try_from(*len).unwrap_or(usize::MAX) => {
                    Value::Data(data)
                }
                _ => return Err(Malformed("more data than asked for").into()),
            },
            (Kind::ReadDir | Kind::RealPath, Reply::Names(names)) => Value::Names(names),
            (Kind::Stat | Kind::Lstat | Kind::Fstat, Reply::Attrs(attrs)) => Value::Attrs(attrs),
            (Kind::StatVfs | Kind::Limits, Reply::Extended(answer)) => Value::Extended(answer),
            _ => return Err(Malformed("an answer to another kind of request").into()),
        };
        Ok(value)
    }
}
