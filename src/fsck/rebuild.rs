//! Index segments made anew from the tables of the bags.
//!
//! The new ones are published before the old ones are removed, so there is no moment without an index; killed in between, both are there, which
//! costs a little space. Bags in which damage was found are left out: what they held is stored again by the next backup that finds it in the live data.

use super::FsckError;
use super::bags::{BagNo, Bags, cancelled, fingerprints};
use super::flight::fly;
use super::report::given;
use crate::bag::BagKind;
use crate::bag::reader::BagReader;
use crate::base::cancel::Cancel;
use crate::base::id::SegmentId;
use crate::generation::Session;
use crate::generation::session::PublishedSegment;
use crate::index::{BagEntry, Segment, SegmentBag};
use crate::store::{ErrorKind, Store, layout};

/// Objects listed by one segment, or a few more.
const OBJECTS: usize = 1 << 20;

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rebuilt {
    /// Segments written.
    pub written: u64,
    /// Old segments removed.
    pub removed: u64,
}

/// Publishes segments that list these bags, and removes the `old` ones. Memory for one segment; waits: tables in one flight, segments in
/// the next, the removals in the last.
///
/// # Errors
/// When the store fails or the session was revoked. The old segments are then still there.
pub fn run(
    session: &Session,
    reader: &BagReader,
    bags: &Bags,
    sound: &[BagNo],
    old: &[SegmentId],
    cancel: &Cancel,
) -> Result<Rebuilt, FsckError> {
    let entries = sound.iter().filter_map(|number| Some(bags.get(*number)?.sound.as_ref()?.entry));
    let mut open = Segment::default();
    let (mut objects, mut published) = (0usize, Vec::new());
    let ask = |entry: &BagEntry| {
        let len = u64::from(entry.table_len);
        (len, reader.fetch(entry.kind, entry.bag, entry.table_offset, len))
    };
    fly(entries, ask, |entry, answer| {
        cancelled(cancel)?;
        // Read well a moment ago; if not now, the bag is left out.
        let Ok(mut sealed) = given(answer)? else { return Ok(()) };
        let Ok(table) = reader.open_table(entry.bag, entry.table_offset, &mut sealed) else { return Ok(()) };
        let fingerprints = fingerprints(&table);
        objects = objects.saturating_add(fingerprints.len());
        open.bags.push(SegmentBag::new(entry, fingerprints));
        if objects >= OBJECTS {
            let full = std::mem::take(&mut open);
            published.push(session.publish_segment(&full.encode()));
            objects = 0;
        }
        Ok(())
    })?;
    if !open.bags.is_empty() {
        published.push(session.publish_segment(&open.encode()));
    }
    let mut rebuilt = Rebuilt { written: u64::try_from(published.len()).unwrap_or(u64::MAX), removed: 0 };
    PublishedSegment::wait_for_all(published)?;
    rebuilt.removed = remove(&**reader.store(BagKind::Data), old)?;
    Ok(rebuilt)
}

fn remove(store: &dyn Store, old: &[SegmentId]) -> Result<u64, FsckError> {
    let removals: Vec<_> = old.iter().map(|id| store.remove(&layout::segment(*id))).collect();
    let mut removed = 0u64;
    for removal in removals {
        match removal.wait() {
            Ok(()) => removed = removed.saturating_add(1),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(removed)
}
