//! All references of a generation, by walking its tree: each page and list once.

use std::collections::HashSet;

use crate::bag::BagKind;
use crate::bag::source::Source;
use crate::base::id::ObjectId;
use crate::dir::format::{List, Page};
use crate::dir::reader::{self, TreeError};
use crate::entry::{Entry, Piece, Reference};
use crate::generation::{Generation, trees};
use crate::store::StoreError;

/// Pages, lists and their kind that were walked before, by this walk or another.
#[derive(Debug, Default)]
pub struct Reached(HashSet<(ObjectId, u64)>);

impl Reached {
    /// Whether it is met for the first time. The same object may lie in several bags, and its references are the same wherever it does; but it is itself referred to in each place.
    fn is_new(&mut self, reference: &Reference) -> bool {
        let place = reference.place;
        let bag = place.bag.0.first_chunk().map_or(0, |start| u64::from_le_bytes(*start));
        self.0.insert((reference.id, bag ^ place.offset.rotate_left(32) ^ u64::from(place.start)))
    }
}

/// Why a tree could not be walked.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// The store is out of reach.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A page or a list could not be had.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

enum Open {
    Page(Reference),
    List(Reference),
}

/// Gives every reference of a generation to `found`, those of pages and lists that were `reached` before left out. Its tree bags are fetched ahead.
///
/// # Errors
/// When something of it cannot be read: what it refers to is not known then.
pub fn references(
    source: &Source,
    generation: &Generation,
    reached: &mut Reached,
    found: &mut dyn FnMut(BagKind, &Reference),
) -> Result<(), WalkError> {
    trees::fetch_ahead(source, generation)?;
    for bucket in &generation.bag_list.buckets {
        found(BagKind::Tree, bucket);
    }
    let mut open = Vec::new();
    for root in &generation.roots {
        of_entry(&root.entry, &mut open, found);
    }
    while let Some(next) = open.pop() {
        let (Open::Page(reference) | Open::List(reference)) = &next;
        if !reached.is_new(reference) {
            continue;
        }
        match next {
            Open::Page(reference) => match reader::page(source, &reference)? {
                Page::Leaf(entries) => entries.iter().for_each(|entry| of_entry(entry, &mut open, found)),
                Page::Index(children) => {
                    for child in children {
                        found(BagKind::Tree, &child.page);
                        open.push(Open::Page(child.page));
                    }
                }
            },
            Open::List(reference) => match reader::list(source, &reference)? {
                List::Pieces(pieces) => {
                    for piece in pieces {
                        if let Piece::Chunk(chunk) = piece {
                            found(BagKind::Data, &chunk);
                        }
                    }
                }
                List::Parts(parts) => {
                    for part in parts {
                        found(BagKind::Tree, &part.list);
                        open.push(Open::List(part.list));
                    }
                }
            },
        }
    }
    Ok(())
}

fn of_entry(entry: &Entry, open: &mut Vec<Open>, found: &mut dyn FnMut(BagKind, &Reference)) {
    let is_directory = matches!(entry.content, crate::entry::Content::Directory(_));
    for (kind, reference) in reader::references(entry) {
        found(kind, &reference);
        match kind {
            BagKind::Tree if is_directory => open.push(Open::Page(reference)),
            BagKind::Tree => open.push(Open::List(reference)),
            BagKind::Data => {}
        }
    }
}
