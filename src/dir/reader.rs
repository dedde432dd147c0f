//! Reading directories and chunk lists of a repository.

use super::format::{self, Child, FormatError, List, Page};
use crate::bag::BagKind;
use crate::bag::reader::ReadError;
use crate::bag::source::Source;
use crate::base::id::BagId;
use crate::entry::{Content, Entry, ListPart, Piece, Reference};

/// Why a page or a list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Its bytes could not be had.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// They are not a page or a list.
    #[error("bag {bag} holds something else than a directory at byte {offset}: {source}")]
    Format {
        /// The bag.
        bag: BagId,
        /// Where the block begins.
        offset: u64,
        /// What is wrong.
        source: FormatError,
    },
    /// Pages are nested deeper than any directory needs.
    #[error("a directory's pages are nested too deeply")]
    Depth,
}

impl TreeError {
    /// The bag that is there, and is damaged.
    #[must_use]
    pub fn damaged_bag(&self) -> Option<BagId> {
        match self {
            Self::Read(error) => error.damaged_bag(),
            Self::Format { bag, .. } => Some(*bag),
            Self::Depth => None,
        }
    }

    /// Whether the repository is damaged, as opposed to out of reach.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Read(error) => error.is_damage(),
            _ => true,
        }
    }
}

/// More levels than pages of a hundred children ever need.
const MAX_LEVELS: usize = 16;

/// Reads a page.
///
/// # Errors
/// When it cannot be had or is damaged.
pub fn page(source: &Source, reference: &Reference) -> Result<Page, TreeError> {
    decoded(reference, source.with(BagKind::Tree, reference, format::decode_page)?)
}

/// Reads a chunk list.
///
/// # Errors
/// When it cannot be had or is damaged.
pub fn list(source: &Source, reference: &Reference) -> Result<List, TreeError> {
    decoded(reference, source.with(BagKind::Tree, reference, format::decode_list)?)
}

fn decoded<T>(reference: &Reference, outcome: Result<T, FormatError>) -> Result<T, TreeError> {
    let place = reference.place;
    outcome.map_err(|source| TreeError::Format { bag: place.bag, offset: place.offset, source })
}

/// A leaf page with its reference.
#[derive(Debug)]
pub struct Leaf {
    /// Where it lies.
    pub reference: Reference,
    /// Its entries, ascending by name.
    pub entries: Vec<Entry>,
}

/// The leaf pages of a directory, in order, one in memory at a time.
pub struct Leaves<'a> {
    source: &'a Source,
    /// Per level, what is still to be read, the next last.
    stack: Vec<Vec<Reference>>,
    index: Vec<Reference>,
}

/// The leaf pages of the directory with this top page.
#[must_use]
pub fn leaves(source: &Source, top: Option<Reference>) -> Leaves<'_> {
    Leaves { source, stack: vec![top.into_iter().collect()], index: Vec::new() }
}

impl Leaves<'_> {
    /// The index pages read so far.
    #[must_use]
    pub fn index_pages(&self) -> &[Reference] {
        &self.index
    }

    fn advance(&mut self) -> Result<Option<Leaf>, TreeError> {
        loop {
            let Some(level) = self.stack.last_mut() else { return Ok(None) };
            let Some(reference) = level.pop() else {
                self.stack.pop();
                continue;
            };
            match page(self.source, &reference)? {
                Page::Leaf(entries) => return Ok(Some(Leaf { reference, entries })),
                Page::Index(_) if self.stack.len() > MAX_LEVELS => return Err(TreeError::Depth),
                Page::Index(children) => {
                    self.index.push(reference);
                    self.stack.push(children.iter().rev().map(|child: &Child| child.page).collect());
                }
            }
        }
    }
}

impl Iterator for Leaves<'_> {
    type Item = Result<Leaf, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if matches!(next, Some(Err(_))) {
            // What is behind a page that cannot be read may lie anywhere: the rest is not guessed at.
            self.stack.clear();
        }
        next
    }
}

/// The pieces of a file's contents, in order, one list object in memory at a time.
pub struct Pieces<'a> {
    source: &'a Source,
    stack: Vec<Step>,
}

enum Step {
    Pieces(std::vec::IntoIter<Piece>),
    Parts(std::vec::IntoIter<ListPart>),
}

/// The pieces of these contents; none for contents that have none.
#[must_use]
pub fn pieces<'a>(source: &'a Source, content: &Content) -> Pieces<'a> {
    let first = match content {
        Content::Pieces(pieces) => Some(Step::Pieces(pieces.clone().into_iter())),
        Content::Lists { parts, .. } => Some(Step::Parts(parts.clone().into_iter())),
        _ => None,
    };
    Pieces { source, stack: first.into_iter().collect() }
}

impl Iterator for Pieces<'_> {
    type Item = Result<Piece, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let part = match self.stack.last_mut()? {
                Step::Pieces(pieces) => match pieces.next() {
                    Some(piece) => return Some(Ok(piece)),
                    None => None,
                },
                Step::Parts(parts) => parts.next(),
            };
            let Some(part) = part else {
                self.stack.pop();
                continue;
            };
            if self.stack.len() > MAX_LEVELS {
                self.stack.clear();
                return Some(Err(TreeError::Depth));
            }
            match list(self.source, &part.list) {
                Ok(List::Pieces(pieces)) => self.stack.push(Step::Pieces(pieces.into_iter())),
                Ok(List::Parts(parts)) => self.stack.push(Step::Parts(parts.into_iter())),
                Err(error) => {
                    self.stack.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The references that stand in an entry: chunks in data bags, pages and lists in tree bags.
pub fn references(entry: &Entry) -> impl Iterator<Item = (BagKind, Reference)> + '_ {
    use crate::entry::XattrValue;
    let xattrs = entry.xattrs.iter().filter_map(|xattr| match &xattr.value {
        XattrValue::Chunk(reference) => Some((BagKind::Data, *reference)),
        XattrValue::Inline(_) => None,
    });
    let (pieces, parts, page): (&[Piece], &[ListPart], _) = match &entry.content {
        Content::Pieces(pieces) => (pieces, &[], None),
        Content::Lists { parts, .. } => (&[], parts, None),
        Content::Directory(page) => (&[], &[], *page),
        _ => (&[], &[], None),
    };
    let pieces = pieces.iter().filter_map(|piece| match piece {
        Piece::Chunk(reference) => Some((BagKind::Data, *reference)),
        Piece::Hole(_) => None,
    });
    let parts = parts.iter().map(|part| (BagKind::Tree, part.list));
    xattrs.chain(pieces).chain(parts).chain(page.map(|page| (BagKind::Tree, page)))
}
