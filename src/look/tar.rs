//! Headers of tar archives in pax form: what does not fit the old fields stands in extended records.

use std::io::{self, Write};

use tar::{Builder, EntryType, Header};

use super::acl;
use crate::base::time::Timestamp;
use crate::entry::{Kind, Metadata};

/// Bytes of a block of an archive.
const BLOCK: usize = 512;

/// The largest size that fits a header's field.
const MOST_SIZE: u64 = 0o777_7777_7777;

/// The largest number of an owner that does.
const MOST_ID: u32 = 0o777_7777;

/// A file as an archive has it.
pub struct Member<'a> {
    /// Its path, without a slash at its start.
    pub path: &'a [u8],
    /// What is known of it.
    pub metadata: &'a Metadata,
    /// The path of the file that it is another name of, or a link's target.
    pub link: Option<&'a [u8]>,
    /// Whether it is another name of a file.
    pub is_hard_link: bool,
    /// Its xattrs.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
    /// Where its data lie if it has holes: offsets and lengths.
    pub segments: Option<&'a [(u64, u64)]>,
}

/// Writes archives.
pub struct Archive<W: Write>(Builder<W>);

impl<W: Write> Archive<W> {
    /// An archive that is written to `out`.
    pub fn new(out: W) -> Self {
        Self(Builder::new(out))
    }

    /// Writes a member's header, and the map of its holes. Its data follow, as many bytes as they are, and [`Self::pad`].
    ///
    /// # Errors
    /// What `out` says.
    pub fn begin(&mut self, member: &Member<'_>) -> io::Result<()> {
        let map = member.segments.map(|segments| sparse_map(segments, member.metadata.size));
        let data = match (member.segments, member.metadata.kind, member.is_hard_link) {
            (Some(segments), _, _) => segments.iter().map(|(_, len)| *len).fold(0, u64::saturating_add),
            (None, Kind::File, false) => member.metadata.size,
            _ => 0,
        };
        let size = data.saturating_add(length(map.as_deref().unwrap_or_default()));
        let records = records(member, size);
        if !records.is_empty() {
            let records = records.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
            self.0.append_pax_extensions(records)?;
        }
        let header = header(member, size);
        let out = self.0.get_mut();
        out.write_all(header.as_bytes())?;
        out.write_all(map.as_deref().unwrap_or_default())
    }

    /// Writes data of the member that was begun last.
    ///
    /// # Errors
    /// What `out` says.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Fills up the last block of a member that had so many bytes of data.
    ///
    /// # Errors
    /// What `out` says.
    pub fn pad(&mut self, data: u64) -> io::Result<()> {
        let over = usize::try_from(data % 512).unwrap_or(0);
        let fill = if over == 0 { 0 } else { BLOCK.saturating_sub(over) };
        self.data([0; BLOCK].get(..fill).unwrap_or_default())
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// What `out` says.
    pub fn end(mut self) -> io::Result<()> {
        self.0.finish()
    }
}

fn header(member: &Member<'_>, size: u64) -> Header {
    let metadata = member.metadata;
    let mut header = Header::new_ustar();
    header.set_entry_type(match metadata.kind {
        _ if member.is_hard_link => EntryType::Link,
        Kind::File | Kind::Socket => EntryType::Regular,
        Kind::Directory => EntryType::Directory,
        Kind::Symlink => EntryType::Symlink,
        Kind::Fifo => EntryType::Fifo,
        Kind::CharDevice => EntryType::Char,
        Kind::BlockDevice => EntryType::Block,
    });
    header.set_mode(metadata.mode.into());
    header.set_uid(metadata.owner.uid.min(MOST_ID).into());
    header.set_gid(metadata.owner.gid.min(MOST_ID).into());
    header.set_size(size.min(MOST_SIZE));
    header.set_mtime(u64::try_from(metadata.mtime.secs).unwrap_or(0).min(MOST_SIZE));
    if matches!(metadata.kind, Kind::CharDevice | Kind::BlockDevice) {
        // Numbers too large for the fields have no other place.
        let _ = header.set_device_major(metadata.rdev.0);
        let _ = header.set_device_minor(metadata.rdev.1);
    }
    if let Some(ustar) = header.as_ustar_mut() {
        put(&mut ustar.name, member.path);
        put(&mut ustar.linkname, member.link.unwrap_or_default());
        put(&mut ustar.uname, &metadata.owner.user);
        put(&mut ustar.gname, &metadata.owner.group);
    }
    header.set_cksum();
    header
}

/// As much of it as fits.
fn put(field: &mut [u8], bytes: &[u8]) {
    field.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
}

/// What does not fit the header.
fn records(member: &Member<'_>, size: u64) -> Vec<(String, Vec<u8>)> {
    let metadata = member.metadata;
    let mut records: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |key: &str, value: &[u8]| records.push((key.to_owned(), value.to_vec()));
    if member.segments.is_some() {
        add("GNU.sparse.major", b"1");
        add("GNU.sparse.minor", b"0");
        add("GNU.sparse.name", member.path);
        add("GNU.sparse.realsize", metadata.size.to_string().as_bytes());
    }
    let has_room = |bytes: &[u8], room: usize| bytes.len() <= room && bytes.is_ascii();
    if !has_room(member.path, 100) {
        add("path", member.path);
    }
    if let Some(link) = member.link.filter(|link| !has_room(link, 100)) {
        add("linkpath", link);
    }
    let Timestamp { secs, nanos } = metadata.mtime;
    if nanos != 0 || !(0..=i64::try_from(MOST_SIZE).unwrap_or(i64::MAX)).contains(&secs) {
        add("mtime", decimal(metadata.mtime).as_bytes());
    }
    let owner = &metadata.owner;
    for (key, number) in [("uid", owner.uid), ("gid", owner.gid)] {
        if number > MOST_ID {
            add(key, number.to_string().as_bytes());
        }
    }
    for (key, name) in [("uname", &owner.user), ("gname", &owner.group)] {
        if !has_room(name, 31) {
            add(key, name);
        }
    }
    if size > MOST_SIZE {
        add("size", size.to_string().as_bytes());
    }
    if !member.is_hard_link {
        for (name, value) in member.xattrs {
            let list = match &name[..] {
                b"system.posix_acl_access" => Some("SCHILY.acl.access"),
                b"system.posix_acl_default" => Some("SCHILY.acl.default"),
                _ => None,
            };
            match (list, list.and_then(|_| acl::text(value))) {
                (Some(key), Some(text)) => add(key, text.as_bytes()),
                _ => add(&format!("SCHILY.xattr.{}", xattr_key(name)), value),
            }
        }
    }
    records
}

/// A name in a record's key: an equals sign would end the key.
fn xattr_key(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace('%', "%25").replace('=', "%3D")
}

/// Seconds with their fraction.
fn decimal(time: Timestamp) -> String {
    let Timestamp { secs, nanos } = time;
    match (secs, nanos) {
        (_, 0) => secs.to_string(),
        (0.., _) => format!("{secs}.{nanos:09}"),
        // The fraction counts away from zero.
        _ => format!(
            "-{}.{:09}",
            secs.saturating_add(1).unsigned_abs(),
            1_000_000_000_u32.saturating_sub(nanos)
        ),
    }
}

/// Where the data of a file of this size lie, in the form of GNU tar's version 1.0.
fn sparse_map(segments: &[(u64, u64)], size: u64) -> Vec<u8> {
    let ends = segments.last().map(|(offset, len)| offset.saturating_add(*len)) == Some(size);
    let last = (!ends).then_some((size, 0));
    let all: Vec<_> = segments.iter().copied().chain(last).collect();
    let mut map = format!("{}\n", all.len());
    for (offset, len) in all {
        map.push_str(&format!("{offset}\n{len}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().div_ceil(BLOCK).saturating_mul(BLOCK), 0);
    map
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_fractions() {
        let text = |secs, nanos| decimal(Timestamp { secs, nanos });
        assert_eq!(text(5, 0), "5");
        assert_eq!(text(5, 70), "5.000000070");
        assert_eq!(text(-1, 500_000_000), "-0.500000000");
        assert_eq!(text(-315_525_296, 678_901_234), "-315525295.321098766");
        assert_eq!(text(-2, 0), "-2");
    }

    #[test]
    fn maps_of_holes() {
        let text = |segments: &[(u64, u64)], size| {
            let map = sparse_map(segments, size);
            assert_eq!(map.len() % BLOCK, 0);
            String::from_utf8(map).unwrap().trim_end_matches('\0').to_owned()
        };
        assert_eq!(text(&[(10, 5)], 100), "2\n10\n5\n100\n0\n");
        assert_eq!(text(&[(0, 5), (95, 5)], 100), "2\n0\n5\n95\n5\n");
        assert_eq!(text(&[], 7), "1\n7\n0\n");
    }
}
