//! Answers as packets: what a server sends.

use bytes::BufMut;

use super::fields::put_string;
use super::packet::wire;
use super::reply::Reply;

impl Reply {
    /// Appends the packet, with its length in front, that answers the request with this id. (A hello has none: its version stands there.)
    pub fn put(&self, id: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(0);
        match self {
            Self::Hello(hello) => {
                begin(out, wire::VERSION, hello.version);
                for (name, value) in &hello.extensions {
                    put_string(out, name.as_bytes());
                    put_string(out, value);
                }
            }
            Self::Status(status) => {
                begin(out, wire::STATUS, id);
                out.put_u32(status.code.number());
                put_string(out, status.message.as_bytes());
                put_string(out, b"");
            }
            Self::Handle(handle) => {
                begin(out, wire::HANDLE, id);
                put_string(out, handle);
            }
            Self::Data(data) => {
                begin(out, wire::DATA, id);
                put_string(out, data);
            }
            Self::Names(entries) => {
                begin(out, wire::NAME, id);
                out.put_u32(u32::try_from(entries.len()).unwrap_or(u32::MAX));
                for entry in entries {
                    put_string(out, &entry.name);
                    put_string(out, &entry.long_name);
                    entry.attrs.put(out);
                }
            }
            Self::Attrs(attrs) => {
                begin(out, wire::ATTRS, id);
                attrs.put(out);
            }
            Self::Extended(answer) => {
                begin(out, wire::EXTENDED_REPLY, id);
                out.put_slice(answer);
            }
        }
        let len = u32::try_from(out.len().saturating_sub(start).saturating_sub(4)).unwrap_or(u32::MAX);
        if let Some(place) = out.get_mut(start..start.saturating_add(4)) {
            place.copy_from_slice(&len.to_be_bytes());
        }
    }
}

fn begin(out: &mut Vec<u8>, number: u8, id: u32) {
    out.put_u8(number);
    out.put_u32(id);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::attrs::Attrs;
    use super::super::packet::Packets;
    use super::super::reply::{Code, DirEntry, Hello, Status};
    use super::*;

    #[test]
    fn what_is_put_together_is_what_a_client_reads() {
        let attrs = Attrs { size: Some(1 << 40), permissions: Some(0o100_600), modified: Some(9) };
        let entry = DirEntry { name: "a".into(), long_name: "-rw------- a".into(), attrs };
        let extensions = [("x".to_owned(), Bytes::from_static(b"1"))].into();
        let replies = [
            (0, Reply::Hello(Hello { version: 3, extensions })),
            (1, Reply::Status(Status { code: Code::Failure, message: "words".into() })),
            (2, Reply::Handle(Bytes::from_static(&[0, 0, 0, 0x80]))),
            (3, Reply::Data(Bytes::from_static(b"abc"))),
            (4, Reply::Names(vec![entry.clone(), entry])),
            (5, Reply::Attrs(attrs)),
            (6, Reply::Extended(Bytes::from_static(b"12345678"))),
        ];
        let mut out = Vec::new();
        for (id, reply) in &replies {
            reply.put(*id, &mut out);
        }
        let mut packets = Packets::default();
        packets.push(&out);
        for expected in replies {
            assert_eq!(Reply::decode(packets.next_packet().unwrap().unwrap()), Ok(expected));
        }
        assert!(packets.is_empty());
    }
}
