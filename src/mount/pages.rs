//! Directories' pages and files' chunk lists, decoded, with those used last kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::bag::source::Source;
use crate::base::id::ObjectId;
use crate::dir::reader::{self, TreeError};
use crate::dir::{Child, List, Page};
use crate::entry::{Entry, ListPart, Piece, Reference};

/// Bytes of objects whose decoded forms are kept: these are about four times as large.
const KEPT: usize = 8 << 20;

/// More levels than anything needs.
const MAX_LEVELS: usize = 16;

/// Things that follow each other, each of some length: entries below pages, bytes in pieces.
#[derive(Debug)]
pub struct Row<T> {
    items: Vec<T>,
    /// Where each begins, and where the last ends.
    starts: Vec<u64>,
}

impl<T> Row<T> {
    /// These, `len` long each.
    pub fn new(items: Vec<T>, len: impl Fn(&T) -> u64) -> Self {
        let mut at = 0u64;
        let mut starts = vec![0];
        starts.extend(items.iter().map(|item| {
            at = at.saturating_add(len(item));
            at
        }));
        Self { items, starts }
    }

    /// The length of all.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The item that holds `at`, and where it begins; `None` behind the end.
    pub fn at(&self, at: u64) -> Option<(&T, u64)> {
        let number = self.starts.partition_point(|start| *start <= at).checked_sub(1)?;
        Some((self.items.get(number)?, *self.starts.get(number)?))
    }

    /// The items, in order.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

/// A leaf page's entries.
pub type Leaf = Arc<Vec<Entry>>;

/// An object of a tree bag, decoded.
#[derive(Debug, Clone)]
enum Decoded {
    Leaf(Leaf),
    Index(Arc<Row<Child>>),
    Pieces(Arc<Row<Piece>>),
    Parts(Arc<Row<ListPart>>),
}

/// Reads and keeps pages and lists. Shared by threads; two that want the same at once may both decode it.
pub struct Pages {
    source: Source,
    kept: Mutex<Kept>,
}

struct Kept {
    decoded: LruCache<ObjectId, (Decoded, usize)>,
    bytes: usize,
}

/// An entry found by its place.
pub struct Spot {
    /// The page that it stands in.
    pub leaf: Leaf,
    /// How many entries of the directory stand before that page.
    pub before: u64,
    /// The entry's number in the page.
    pub number: usize,
}

impl Pages {
    /// Reads from `source`.
    pub fn new(source: Source) -> Self {
        Self { source, kept: Mutex::new(Kept { decoded: LruCache::unbounded(), bytes: 0 }) }
    }

    /// Where the objects come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// How many entries the directory with this top page has.
    pub fn count(&self, top: Option<Reference>) -> Result<u64, TreeError> {
        let Some(top) = top else { return Ok(0) };
        Ok(match self.page(&top)? {
            Decoded::Index(children) => children.len(),
            Decoded::Leaf(entries) => length(&entries),
            _ => 0,
        })
    }

    /// The entry number `index` of the directory with this top page, and the page around it; `None` behind the last.
    pub fn at(&self, top: Option<Reference>, index: u64) -> Result<Option<Spot>, TreeError> {
        let Some(mut next) = top else { return Ok(None) };
        let mut before = 0u64;
        for _ in 0..MAX_LEVELS {
            match self.page(&next)? {
                Decoded::Index(children) => match children.at(index.saturating_sub(before)) {
                    Some((child, start)) => {
                        before = before.saturating_add(start);
                        next = child.page;
                    }
                    None => return Ok(None),
                },
                Decoded::Leaf(leaf) => {
                    let number = usize::try_from(index.saturating_sub(before)).unwrap_or(usize::MAX);
                    return Ok((number < leaf.len()).then_some(Spot { leaf, before, number }));
                }
                _ => return Ok(None),
            }
        }
        Err(TreeError::Depth)
    }

    /// The entry `name` of the directory with this top page.
    pub fn find(&self, top: Option<Reference>, name: &[u8]) -> Result<Option<Spot>, TreeError> {
        let Some(mut next) = top else { return Ok(None) };
        let mut before = 0u64;
        for _ in 0..MAX_LEVELS {
            match self.page(&next)? {
                Decoded::Index(children) => {
                    let number = children.items().partition_point(|child| *child.last < *name);
                    let Some(child) = children.items().get(number) else { return Ok(None) };
                    before = before.saturating_add(children.starts.get(number).copied().unwrap_or(0));
                    next = child.page;
                }
                Decoded::Leaf(leaf) => {
                    let found = leaf.binary_search_by(|entry| (*entry.name).cmp(name));
                    return Ok(found.ok().map(|number| Spot { leaf, before, number }));
                }
                _ => return Ok(None),
            }
        }
        Err(TreeError::Depth)
    }

    /// The pieces of a list object, or the lists below it.
    pub fn list(&self, reference: &Reference) -> Result<ListRow, TreeError> {
        let decoded = self.decoded(reference, |source| {
            Ok(match reader::list(source, reference)? {
                List::Pieces(pieces) => Decoded::Pieces(Arc::new(Row::new(pieces, Piece::len))),
                List::Parts(parts) => Decoded::Parts(Arc::new(Row::new(parts, |part| part.bytes))),
            })
        })?;
        match decoded {
            Decoded::Pieces(pieces) => Ok(ListRow::Pieces(pieces)),
            Decoded::Parts(parts) => Ok(ListRow::Parts(parts)),
            // The same object as a page: no list.
            Decoded::Leaf(_) | Decoded::Index(_) => Err(TreeError::Depth),
        }
    }

    fn page(&self, reference: &Reference) -> Result<Decoded, TreeError> {
        self.decoded(reference, |source| {
            Ok(match reader::page(source, reference)? {
                Page::Leaf(entries) => Decoded::Leaf(Arc::new(entries)),
                Page::Index(children) => Decoded::Index(Arc::new(Row::new(children, |child| child.entries))),
            })
        })
    }

    fn decoded(
        &self,
        reference: &Reference,
        decode: impl FnOnce(&Source) -> Result<Decoded, TreeError>,
    ) -> Result<Decoded, TreeError> {
        if let Some((decoded, _)) = self.lock().decoded.get(&reference.id) {
            return Ok(decoded.clone());
        }
        let decoded = decode(&self.source)?;
        let len = usize::try_from(reference.place.len).unwrap_or(usize::MAX);
        self.lock().insert(reference.id, decoded.clone(), len);
        Ok(decoded)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a list object holds.
#[derive(Debug, Clone)]
pub enum ListRow {
    /// Pieces of contents.
    Pieces(Arc<Row<Piece>>),
    /// Lists below.
    Parts(Arc<Row<ListPart>>),
}

impl Kept {
    fn insert(&mut self, id: ObjectId, decoded: Decoded, len: usize) {
        self.bytes = self.bytes.saturating_add(len);
        if let Some((_, (_, len))) = self.decoded.push(id, (decoded, len)) {
            self.bytes = self.bytes.saturating_sub(len);
        }
        while self.bytes > KEPT
            && self.decoded.len() > 1
            && let Some((_, (_, len))) = self.decoded.pop_lru()
        {
            self.bytes = self.bytes.saturating_sub(len);
        }
    }
}

fn length<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_knows_what_stands_where() {
        let row = Row::new(vec![10u64, 0, 5], |len| *len);
        let at = |at| row.at(at).map(|(item, start)| (*item, start));
        assert_eq!(row.len(), 15);
        assert_eq!(at(0), Some((10, 0)));
        assert_eq!(at(9), Some((10, 0)));
        assert_eq!(at(10), Some((5, 10)));
        assert_eq!(at(14), Some((5, 10)));
        assert_eq!(at(15), None);
        assert_eq!(Row::new(Vec::<u64>::new(), |len| *len).at(0).map(|(item, _)| *item), None);
    }
}
