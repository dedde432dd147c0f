//! What the machine's server does with requests.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};

use super::{Node, World};
use crate::sftp::attrs::Attrs;
use crate::sftp::fields::{Fields, put_string};
use crate::sftp::packet::{Kind, Packets, extension, wire};

pub(super) enum Open {
    File(Vec<u8>),
    Dir(Vec<Vec<u8>>),
}

#[derive(Default)]
pub(super) struct ServerChannel {
    pub(super) input: Packets,
    pub(super) handles: BTreeMap<u32, Open>,
    next: u32,
    free: Vec<u32>,
    pub(super) swapped: Option<Vec<u8>>,
    /// It takes all and answers nothing.
    pub(super) hung: bool,
}

pub(super) struct Parsed {
    pub(super) id: u32,
    number: u8,
    name: Vec<u8>,
    fields: Fields,
}

pub(super) fn parse(packet: Bytes) -> Option<(Kind, Parsed)> {
    let mut fields = Fields(packet);
    let number = fields.u8().ok()?;
    let id = fields.u32().ok()?;
    let mut name = Vec::new();
    let kind = match number {
        wire::INIT => Kind::Init,
        wire::OPEN => Kind::Open,
        wire::CLOSE => Kind::Close,
        wire::READ => Kind::Read,
        wire::WRITE => Kind::Write,
        wire::LSTAT => Kind::Lstat,
        wire::FSTAT => Kind::Fstat,
        wire::OPENDIR => Kind::OpenDir,
        wire::READDIR => Kind::ReadDir,
        wire::REMOVE => Kind::Remove,
        wire::MKDIR => Kind::MakeDir,
        wire::REALPATH => Kind::RealPath,
        wire::STAT => Kind::Stat,
        wire::RENAME => Kind::Rename,
        wire::EXTENDED => {
            name = fields.string().ok()?.to_vec();
            match std::str::from_utf8(&name).ok()? {
                extension::FSYNC => Kind::Fsync,
                extension::LIMITS => Kind::Limits,
                extension::STATVFS => Kind::StatVfs,
                _ => return None,
            }
        }
        _ => return None,
    };
    Some((kind, Parsed { id, number, name, fields }))
}

fn answer(number: u8, id: u32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = vec![number];
    packet.put_u32(id);
    body(&mut packet);
    let mut framed = Vec::new();
    put_string(&mut framed, &packet);
    framed
}

pub(super) fn status(id: u32, code: u32) -> Vec<u8> {
    answer(wire::STATUS, id, |out| {
        out.put_u32(code);
        put_string(out, b"words");
        put_string(out, b"");
    })
}

fn attrs_of(node: &Node) -> Attrs {
    match node {
        Node::Dir => Attrs { size: Some(0), permissions: Some(0o040_700), modified: Some(1) },
        Node::File(bytes) => Attrs {
            size: Some(u64::try_from(bytes.len()).unwrap()),
            permissions: Some(0o100_600),
            modified: Some(1),
        },
    }
}

fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..end]
}

impl ServerChannel {
    fn handle(&mut self, world: &mut World, id: u32, open: Open) -> Vec<u8> {
        // As OpenSSH numbers them; a plain server does otherwise, and not with what could be text.
        let handle = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1 + if world.extensions.is_empty() { 0x80 } else { 0 }
        });
        self.handles.insert(handle, open);
        world.open += 1;
        world.most_open = world.most_open.max(world.open);
        answer(wire::HANDLE, id, |out| put_string(out, &handle.to_be_bytes()))
    }

    pub(super) fn serve(&mut self, world: &mut World, request: Parsed) -> Vec<u8> {
        let Parsed { id, number, name, mut fields } = request;
        let ok = status(id, 0);
        if number == wire::INIT {
            let extensions = world.extensions.clone();
            return answer(wire::VERSION, 3, |out| {
                for name in extensions {
                    put_string(out, name.as_bytes());
                    put_string(out, b"1");
                }
            });
        }
        if name == extension::LIMITS.as_bytes() {
            if !world.extensions.contains(&extension::LIMITS) {
                return status(id, 8);
            }
            let payload = u64::try_from(world.payload).unwrap();
            return answer(wire::EXTENDED_REPLY, id, |out| {
                for number in [payload + 1024, payload, payload, 100] {
                    out.put_u64(number);
                }
            });
        }
        let first = fields.string().unwrap().to_vec();
        if name == extension::STATVFS.as_bytes() {
            let room = world.room;
            return answer(wire::EXTENDED_REPLY, id, |out| {
                for number in [1, 1, 1000, room, room, 1000, 1000, 1000, 0, 0, 255] {
                    out.put_u64(number);
                }
            });
        }
        let handle = <[u8; 4]>::try_from(&first[..]).map_or(u32::MAX, u32::from_be_bytes);
        let path = match self.handles.get(&handle) {
            Some(Open::File(path)) => path.clone(),
            _ => first.clone(),
        };
        let node = world.nodes.get(&path).cloned();
        match number {
            wire::OPEN => {
                let flags = fields.u32().unwrap();
                let exists = node.is_some();
                match (flags & 0x8 != 0, exists) {
                    (true, true) => return status(id, 4),
                    (true, false) if world.nodes.get(parent(&path)) != Some(&Node::Dir) => {
                        return status(id, 2);
                    }
                    (true, false) => {
                        world.nodes.insert(path.clone(), Node::File(Vec::new()));
                    }
                    (false, false) => return status(id, 2),
                    (false, true) => {}
                }
                self.handle(world, id, Open::File(path))
            }
            wire::OPENDIR => {
                if node != Some(Node::Dir) {
                    return status(id, 2);
                }
                let below = world.nodes.keys().filter(|other| parent(other) == path && **other != path);
                let names = below.cloned().collect();
                self.handle(world, id, Open::Dir(names))
            }
            wire::CLOSE => {
                if self.handles.remove(&handle).is_none() {
                    return status(id, 4);
                }
                if !world.extensions.is_empty() {
                    self.free.push(handle);
                }
                world.open -= 1;
                ok
            }
            wire::READDIR => match self.handles.get_mut(&handle) {
                Some(Open::Dir(names)) if !names.is_empty() => {
                    let some: Vec<_> = names.drain(..names.len().min(100)).collect();
                    answer(wire::NAME, id, |out| {
                        out.put_u32(u32::try_from(some.len()).unwrap());
                        for path in some {
                            let name = path.rsplit(|byte| *byte == b'/').next().unwrap();
                            put_string(out, name);
                            put_string(out, b"");
                            attrs_of(world.nodes.get(&path).unwrap_or(&Node::Dir)).put(out);
                        }
                    })
                }
                _ => status(id, 1),
            },
            wire::READ => {
                let offset = usize::try_from(fields.u64().unwrap()).unwrap();
                let len = usize::try_from(fields.u32().unwrap()).unwrap().min(world.payload);
                match node {
                    Some(Node::File(bytes)) if offset < bytes.len() => {
                        let end = bytes.len().min(offset + len);
                        answer(wire::DATA, id, |out| put_string(out, &bytes[offset..end]))
                    }
                    _ => status(id, 1),
                }
            }
            wire::WRITE => {
                let offset = usize::try_from(fields.u64().unwrap()).unwrap();
                let data = fields.string().unwrap();
                assert!(data.len() <= world.payload, "more than the server takes");
                assert!(self.handles.contains_key(&handle), "a handle of another connection");
                // A file that was removed is written to all the same.
                if let Some(Node::File(bytes)) = world.nodes.get_mut(&path) {
                    bytes.resize(bytes.len().max(offset + data.len()), 0);
                    bytes[offset..offset + data.len()].copy_from_slice(&data);
                }
                ok
            }
            wire::EXTENDED => {
                assert!(world.extensions.contains(&extension::FSYNC), "an extension that is not offered");
                ok
            }
            wire::STAT | wire::LSTAT | wire::FSTAT => match node {
                Some(node) => answer(wire::ATTRS, id, |out| attrs_of(&node).put(out)),
                None => status(id, 2),
            },
            wire::REMOVE => match node {
                Some(Node::File(_)) => {
                    world.nodes.remove(&path);
                    ok
                }
                Some(Node::Dir) => status(id, 4),
                None => status(id, 2),
            },
            wire::MKDIR => match (node, world.nodes.get(parent(&path))) {
                (Some(_), _) => status(id, 4),
                (None, Some(Node::Dir)) => {
                    world.nodes.insert(path, Node::Dir);
                    ok
                }
                (None, _) => status(id, 2),
            },
            wire::RENAME => {
                let to = fields.string().unwrap().to_vec();
                match (node, world.nodes.contains_key(&to), world.nodes.get(parent(&to))) {
                    (None, _, _) | (Some(_), false, None | Some(Node::File(_))) => status(id, 2),
                    (Some(_), true, _) => status(id, 4),
                    (Some(node), false, Some(Node::Dir)) => {
                        world.nodes.remove(&path);
                        world.nodes.insert(to.clone(), node);
                        // Open handles follow the file.
                        for open in self.handles.values_mut() {
                            if let Open::File(name) = open
                                && *name == path
                            {
                                name.clone_from(&to);
                            }
                        }
                        ok
                    }
                }
            }
            _ => status(id, 8),
        }
    }
}
