//! Everything that SFTP can do, on every path.

use crate::client::*;

/// Extensions that servers have, and none of them.
const EXTENSIONS: [&str; 12] = [
    "posix-rename@openssh.com",
    "hardlink@openssh.com",
    "lsetstat@openssh.com",
    "fsync@openssh.com",
    "statvfs@openssh.com",
    "fstatvfs@openssh.com",
    "expand-path@openssh.com",
    "copy-data",
    "home-directory",
    "users-groups-by-id@openssh.com",
    "limits@openssh.com",
    "\u{fffd}",
];

/// All paths that a client finds by listing, however deep.
pub fn found(client: &mut Client) -> Vec<Vec<u8>> {
    let (mut open, mut found) = (vec![Vec::new()], Vec::new());
    while let Some(dir) = open.pop() {
        for name in client.list(if dir.is_empty() { b"/" } else { &dir }) {
            let path = [&dir[..], b"/", &name].concat();
            open.push(path.clone());
            found.push(path);
        }
    }
    found
}

/// Does all of it. The server must answer every single request.
pub fn everything(client: &mut Client, paths: &[Vec<u8>]) {
    for path in paths {
        open_in_every_way(client, path);
        on_one_path(client, path);
        for other in paths {
            on_two_paths(client, path, other);
        }
    }
    for kind in (3..=255_u8).filter(|kind| !(3..=20).contains(kind)) {
        client.ask(kind, &fields(&[&string("config"), &string("config"), &NO_ATTRS]));
    }
}

fn open_in_every_way(client: &mut Client, path: &[u8]) {
    for attrs in [&NO_ATTRS[..], &hostile_attrs()] {
        for flags in (0..64).chain([1 << 31 | 0x1a, u32::MAX]) {
            if let Some(handle) = client.open(path, flags, attrs) {
                on_handle(client, &handle);
            }
        }
    }
    if let Some(handle) = client.ask(OPENDIR, &string(path)).handle() {
        on_handle(client, &handle);
    }
    for handle in [&b""[..], &[0, 0, 0, 0], &[0xff; 4], &[7; 300]] {
        on_handle(client, handle);
    }
}

fn on_handle(client: &mut Client, handle: &[u8]) {
    let handle = string(handle);
    for offset in [0_u64, 1 << 20, u64::MAX] {
        client.ask(WRITE, &fields(&[&handle, &offset.to_be_bytes(), &string("overwritten")]));
        client.ask(READ, &fields(&[&handle, &offset.to_be_bytes(), &u32::MAX.to_be_bytes()]));
    }
    client.ask(FSTAT, &handle);
    client.ask(FSETSTAT, &fields(&[&handle, &hostile_attrs()]));
    client.ask(READDIR, &handle);
    client.extended("fsync@openssh.com", &handle);
    client.extended("fstatvfs@openssh.com", &handle);
    let range = [0_u8; 16];
    client.extended("copy-data", &fields(&[&handle, &range, &handle, &range]));
    client.ask(CLOSE, &handle);
}

fn on_one_path(client: &mut Client, path: &[u8]) {
    let named = string(path);
    for kind in [LSTAT, STAT, REALPATH, READLINK] {
        client.ask(kind, &named);
    }
    client.ask(SETSTAT, &fields(&[&named, &hostile_attrs()]));
    client.ask(MKDIR, &fields(&[&named, &hostile_attrs()]));
    client.ask(REMOVE, &named);
    client.ask(RMDIR, &named);
    for name in EXTENSIONS {
        client.extended(name, &fields(&[&named, &hostile_attrs()]));
    }
}

fn on_two_paths(client: &mut Client, from: &[u8], to: &[u8]) {
    let both = fields(&[&string(from), &string(to)]);
    client.ask(RENAME, &both);
    client.ask(SYMLINK, &both);
    client.extended("posix-rename@openssh.com", &both);
    client.extended("hardlink@openssh.com", &both);
}
