//! Extended attributes, among them POSIX ACLs and capabilities.

use rustix::fd::{AsFd, AsRawFd};
use rustix::fs;
use rustix::io::Errno;

use super::{LiveError, Result};

/// What Linux allows for the list of names, and for a value.
const MAX: usize = 64 * 1024;

/// Most files have none or few: their names fit here.
const USUAL: usize = 1024;

/// An extended attribute with its value as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawXattr {
    /// Its full name.
    pub name: Box<[u8]>,
    /// Its value.
    pub value: Box<[u8]>,
}

/// A way to name the inode whose xattrs are meant.
trait Inode {
    fn list(&self, buffer: &mut [u8]) -> rustix::io::Result<usize>;
    fn get(&self, name: &[u8], buffer: &mut [u8]) -> rustix::io::Result<usize>;
}

/// An entry of an open directory, of any kind, not followed. There is no `getxattrat` before Linux 6.13, and links,
/// FIFOs and devices cannot be opened; the directory's entry in `/proc/self/fd` is a way to the same file.
struct Child(Vec<u8>);

impl Child {
    fn new(dir: impl AsFd, name: &[u8]) -> Self {
        Self([proc_path(dir).as_slice(), b"/", name].concat())
    }
}

impl Inode for Child {
    fn list(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        fs::llistxattr(&self.0, buffer)
    }

    fn get(&self, name: &[u8], buffer: &mut [u8]) -> rustix::io::Result<usize> {
        fs::lgetxattr(&self.0, name, buffer)
    }
}

/// The file that a path leads to.
struct Path<'a>(&'a [u8]);

impl Inode for Path<'_> {
    fn list(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        fs::listxattr(self.0, buffer)
    }

    fn get(&self, name: &[u8], buffer: &mut [u8]) -> rustix::io::Result<usize> {
        fs::getxattr(self.0, name, buffer)
    }
}

/// An open file.
struct Open<Fd>(Fd);

impl<Fd: AsFd> Inode for Open<Fd> {
    fn list(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        fs::flistxattr(&self.0, buffer)
    }

    fn get(&self, name: &[u8], buffer: &mut [u8]) -> rustix::io::Result<usize> {
        fs::fgetxattr(&self.0, name, buffer)
    }
}

/// The path by which this process reaches an open file again.
pub(super) fn proc_path(fd: impl AsFd) -> Vec<u8> {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into_bytes()
}

/// The xattrs of `name` in the directory `dir`, of whatever kind it is, sorted by name. One system call if there are
/// none. A file system that knows no xattrs has none.
///
/// # Errors
/// [`LiveError::Vanished`] if it is gone (or `/proc` is not mounted), else what the system said.
pub fn xattrs_of_child(dir: impl AsFd, name: &[u8]) -> Result<Vec<RawXattr>> {
    read(&Child::new(dir, name))
}

/// The xattrs of an open file or directory, sorted by name.
///
/// # Errors
/// What the system said.
pub fn xattrs_of_fd(fd: impl AsFd) -> Result<Vec<RawXattr>> {
    read(&Open(fd))
}

/// The xattrs of what a path in `/proc/self/fd` leads to.
pub(super) fn xattrs_of_path(path: &[u8]) -> Result<Vec<RawXattr>> {
    read(&Path(path))
}

fn read(inode: &impl Inode) -> Result<Vec<RawXattr>> {
    let names = names(inode)?;
    let mut xattrs = Vec::new();
    if names.is_empty() {
        return Ok(xattrs);
    }
    let mut buffer = vec![0; MAX];
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match inode.get(name, &mut buffer) {
            Ok(len) => xattrs
                .push(RawXattr { name: name.into(), value: buffer.get(..len).unwrap_or_default().into() }),
            // Removed since they were listed, or listed by a file system that does not mean it.
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(errno) => return Err(LiveError::new("read its extended attributes", errno)),
        }
    }
    xattrs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(xattrs)
}

/// The names, each with a NUL after it.
fn names(inode: &impl Inode) -> Result<Vec<u8>> {
    let mut usual = [0; USUAL];
    let result = match inode.list(&mut usual) {
        Ok(len) => Ok(usual.get(..len).unwrap_or_default().to_vec()),
        Err(Errno::RANGE) => {
            let mut buffer = vec![0; MAX];
            inode.list(&mut buffer).map(|len| {
                buffer.truncate(len);
                buffer
            })
        }
        Err(errno) => Err(errno),
    };
    match result {
        Err(Errno::NOTSUP | Errno::NOSYS) => Ok(Vec::new()),
        other => other.map_err(|errno| LiveError::opening("read its extended attributes", errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Scratch, is_root, run};
    use super::*;
    use rustix::fs::{XattrFlags, lsetxattr};

    #[test]
    fn on_every_kind() {
        let scratch = Scratch::new();
        std::fs::write(scratch.join("file"), "").unwrap();
        std::fs::create_dir(scratch.join("dir")).unwrap();
        std::os::unix::fs::symlink("file", scratch.join("symlink")).unwrap();
        run("mkfifo", &["fifo"], scratch.path());
        drop(std::os::unix::net::UnixListener::bind(scratch.join("socket")).unwrap());
        let (fd, big) = (scratch.open().fd().unwrap(), vec![7; 2000]);
        let kind = if is_root() { "trusted" } else { "user" };
        for name in ["file", "dir", "symlink", "fifo", "socket"] {
            assert_eq!(xattrs_of_child(&fd, name.as_bytes()).unwrap(), []);
            if kind == "user" && !matches!(name, "file" | "dir") {
                continue;
            }
            for (attr, value) in [("z", &b"last"[..]), ("a", &big), ("empty", b"")] {
                lsetxattr(scratch.join(name), format!("{kind}.{attr}"), value, XattrFlags::empty()).unwrap();
            }
            let xattrs = xattrs_of_child(&fd, name.as_bytes()).unwrap();
            let names: Vec<_> =
                xattrs.iter().map(|xattr| String::from_utf8_lossy(&xattr.name).into_owned()).collect();
            assert_eq!(names, ["a", "empty", "z"].map(|attr| format!("{kind}.{attr}")), "{name}");
            assert_eq!(*xattrs[0].value, big[..]);
            assert_eq!((&*xattrs[1].value, &*xattrs[2].value), (&b""[..], &b"last"[..]));
        }
        let file = std::fs::File::open(scratch.join("file")).unwrap();
        assert_eq!(xattrs_of_fd(&file).unwrap(), xattrs_of_child(&fd, b"file").unwrap());
        assert!(matches!(xattrs_of_child(&fd, b"gone"), Err(LiveError::Vanished)));
    }

    #[test]
    fn more_names_than_usual() {
        // More than an inode of ext4 takes.
        let scratch = Scratch::in_memory();
        std::fs::write(scratch.join("file"), "").unwrap();
        for number in 0..40 {
            let name = format!("user.{number:0100}");
            lsetxattr(scratch.join("file"), name, b"", XattrFlags::empty()).unwrap();
        }
        assert_eq!(xattrs_of_child(scratch.open().fd().unwrap(), b"file").unwrap().len(), 40);
    }

    #[test]
    fn where_there_are_none() {
        let proc = super::super::LiveDir::open_root(b"/proc/self").unwrap();
        assert_eq!(xattrs_of_child(proc.fd().unwrap(), b"status").unwrap(), []);
    }
}
