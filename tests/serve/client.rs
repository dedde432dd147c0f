//! A client that says whatever it is told to.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Types of packets.
pub const OPEN: u8 = 3;
pub const CLOSE: u8 = 4;
pub const READ: u8 = 5;
pub const WRITE: u8 = 6;
pub const LSTAT: u8 = 7;
pub const FSTAT: u8 = 8;
pub const SETSTAT: u8 = 9;
pub const FSETSTAT: u8 = 10;
pub const OPENDIR: u8 = 11;
pub const READDIR: u8 = 12;
pub const REMOVE: u8 = 13;
pub const MKDIR: u8 = 14;
pub const RMDIR: u8 = 15;
pub const REALPATH: u8 = 16;
pub const STAT: u8 = 17;
pub const RENAME: u8 = 18;
pub const READLINK: u8 = 19;
pub const SYMLINK: u8 = 20;
pub const EXTENDED: u8 = 200;

/// A session with a server of its own.
pub struct Client {
    server: Child,
    input: ChildStdin,
    output: ChildStdout,
    number: u32,
}

/// An answer: its type and what it holds.
pub struct Said {
    pub kind: u8,
    pub body: Vec<u8>,
}

/// A string with its length.
pub fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// Several fields, one after the other.
pub fn fields(all: &[&[u8]]) -> Vec<u8> {
    all.concat()
}

/// Attributes with everything set that could do harm: length, owner, permissions, times.
pub fn hostile_attrs() -> Vec<u8> {
    let mut attrs = 0xf_u32.to_be_bytes().to_vec();
    attrs.extend(0_u64.to_be_bytes());
    for number in [65_534_u32, 65_534, 0o7777, 1, 1] {
        attrs.extend(number.to_be_bytes());
    }
    attrs
}

/// No attributes.
pub const NO_ATTRS: [u8; 4] = [0; 4];

/// The command line of the server; as another user if one is named.
pub fn server(rights: &str, root: &Path, user: Option<u32>) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kitbag"));
    command.args(["serve", rights, "--root"]).arg(root).env_clear();
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

impl Client {
    /// Starts a server and greets.
    pub fn start(rights: &str, root: &Path, user: Option<u32>) -> Self {
        let mut command = server(rights, root, user);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let mut client = Self { server, input, output, number: 0 };
        client.send_raw(&[0, 0, 0, 5, 1, 0, 0, 0, 3]);
        assert_eq!(client.receive().kind, 2, "the greeting");
        client
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).expect("it listens");
    }

    fn receive(&mut self) -> Said {
        let mut head = [0; 4];
        self.output.read_exact(&mut head).expect("an answer");
        let mut packet = vec![0; usize::try_from(u32::from_be_bytes(head)).unwrap()];
        self.output.read_exact(&mut packet).expect("a whole answer");
        Said { kind: packet[0], body: packet.split_off(5) }
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, kind: u8, body: &[u8]) -> Said {
        self.number += 1;
        let mut packet = vec![kind];
        packet.extend(self.number.to_be_bytes());
        packet.extend(body);
        self.send_raw(&string(packet));
        self.receive()
    }

    /// An extension.
    pub fn extended(&mut self, name: &str, body: &[u8]) -> Said {
        self.ask(EXTENDED, &fields(&[&string(name), body]))
    }

    /// Opens a file.
    pub fn open(&mut self, path: &[u8], flags: u32, attrs: &[u8]) -> Option<Vec<u8>> {
        self.ask(OPEN, &fields(&[&string(path), &flags.to_be_bytes(), attrs])).handle()
    }

    /// The names in a directory; nothing if it cannot be listed.
    pub fn list(&mut self, path: &[u8]) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        if let Some(handle) = self.ask(OPENDIR, &string(path)).handle() {
            loop {
                let said = self.ask(READDIR, &string(&handle));
                if said.kind != 104 {
                    break;
                }
                names.extend(said.names());
            }
            self.ask(CLOSE, &string(&handle));
        }
        names.retain(|name| name != b"." && name != b"..");
        names
    }

    /// How many requests there were.
    pub fn asked(&self) -> u32 {
        self.number
    }

    /// Hangs up, and tells how the server ended.
    pub fn end(self) -> Option<i32> {
        let Self { mut server, input, output, .. } = self;
        drop((input, output));
        server.wait().expect("it ends").code()
    }
}

impl Said {
    /// The number of a status.
    pub fn code(&self) -> Option<u32> {
        (self.kind == 101).then(|| u32::from_be_bytes(self.body[..4].try_into().unwrap()))
    }

    pub fn handle(&self) -> Option<Vec<u8>> {
        (self.kind == 102).then(|| self.body[4..].to_vec())
    }

    fn names(&self) -> Vec<Vec<u8>> {
        let mut rest = &self.body[4..];
        let mut names = Vec::new();
        let take = |rest: &mut &[u8]| {
            let len = usize::try_from(u32::from_be_bytes(rest[..4].try_into().unwrap())).unwrap();
            let (string, more) = rest[4..].split_at(len);
            *rest = more;
            string.to_vec()
        };
        while !rest.is_empty() {
            names.push(take(&mut rest));
            take(&mut rest);
            // Flags, length, permissions, two times.
            rest = &rest[4 + 8 + 4 + 8..];
        }
        names
    }
}
