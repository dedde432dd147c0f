//! What the objects of tree bags refer to: pages, lists and buckets as nodes, without their names and contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::bags::{BagNo, Bags, Node, index};
use super::check::{self, Wrong};
use super::scan::Visit;
use crate::bag::BagKind;
use crate::dir::format::{self, List, Page};
use crate::dir::reader;
use crate::entry::{Content, Entry, ListPart, Piece, Reference, XattrValue};
use crate::generation::BagUse;
use crate::generation::format::decode_bucket;

/// What an object of a tree bag is.
#[derive(Debug)]
pub enum What {
    /// A page of a directory.
    Page {
        /// Entries in it or below it.
        entries: u64,
        /// A hash of the last of their names.
        last: blake3::Hash,
    },
    /// A chunk list.
    List {
        /// Bytes of contents that it covers.
        bytes: u64,
    },
    /// A bucket of a bag list: its bags, what they hold, and a [tally] of what is needed of each.
    Bucket(Box<[(BagNo, BagKind, u32)]>),
    /// None of these.
    Other,
}

/// What a reference to an object of a tree bag expects there.
#[derive(Debug, Clone, Copy)]
pub enum Want {
    /// A directory's top page.
    Directory,
    /// A page with so many entries, whose last has a name with this hash.
    Page(u64, blake3::Hash),
    /// A list that covers so many bytes.
    List(u64),
    /// A bucket of a bag list.
    Bucket,
}

/// A reference to an object of a tree bag.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// The object's bag.
    pub bag: BagNo,
    /// The object; `None` when it is not there.
    pub node: Option<Node>,
    /// What it must be.
    pub want: Want,
}

/// An object of a tree bag: what it is, and what it refers to.
#[derive(Debug)]
pub struct Vertex {
    /// What it is.
    pub what: What,
    /// Its references to objects of tree bags.
    pub edges: Box<[Edge]>,
    /// The bags of all its references, how many these are, and the bytes of what they refer to.
    pub bags: Box<[(BagNo, u32, u64)]>,
    /// The bags that do not hold what it refers to.
    pub broken: Box<[BagNo]>,
    /// What contradicts itself in it.
    pub wrong: Option<Wrong>,
}

impl Vertex {
    /// Whether it is what a reference expects.
    pub fn is(&self, want: Want) -> bool {
        match (want, &self.what) {
            (Want::Directory, What::Page { .. }) | (Want::Bucket, What::Bucket(_)) => true,
            (Want::Page(entries, last), What::Page { entries: found, last: name }) => {
                entries == *found && last == *name
            }
            (Want::List(bytes), What::List { bytes: found }) => bytes == *found,
            _ => false,
        }
    }
}

/// All objects of tree bags. Memory in proportion to their number, not to that of chunks.
pub struct Graph<'a> {
    bags: &'a Bags,
    vertices: Vec<OnceLock<Vertex>>,
}

impl<'a> Graph<'a> {
    /// Nothing known yet.
    pub fn new(bags: &'a Bags) -> Self {
        let mut vertices = Vec::new();
        vertices.resize_with(bags.nodes(), OnceLock::new);
        Self { bags, vertices }
    }

    /// An object, if its bytes could be read.
    pub fn get(&self, node: Node) -> Option<&Vertex> {
        self.vertices.get(index(node))?.get()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// The references of an entry as those of an object: a root's stand in a record, not in a page.
    pub fn of_entry(&self, entry: &Entry) -> Vertex {
        let mut refers = Refers::new(self.bags);
        refers.entry(entry);
        refers.vertex(What::Other)
    }

    /// A reference to a bucket.
    pub fn bucket(&self, reference: &Reference) -> Edge {
        let target = self.bags.target(BagKind::Tree, reference);
        Edge { bag: target.bag, node: target.node.filter(|_| target.holds), want: Want::Bucket }
    }
}

impl Visit for Graph<'_> {
    fn object(&self, reference: &Reference, bytes: &[u8]) {
        let Some(node) = self.bags.target(BagKind::Tree, reference).node else { return };
        if let Some(slot) = self.vertices.get(index(node)) {
            slot.get_or_init(|| read(self.bags, bytes));
        }
    }
}

/// What an object says; its bytes are right, so whatever is wrong was written so.
fn read(bags: &Bags, bytes: &[u8]) -> Vertex {
    let mut refers = Refers::new(bags);
    if let Ok(page) = format::decode_page(bytes) {
        let what = refers.page(&page);
        return refers.vertex(what);
    }
    if let Ok(list) = format::decode_list(bytes) {
        refers.list(&list);
        return refers.vertex(What::List { bytes: check::list_bytes(&list) });
    }
    if let Ok(uses) = decode_bucket(bytes) {
        let bag = |one: &BagUse| (bags.number_of(one.bag), one.kind, tally(one.objects, one.bytes));
        return refers.vertex(What::Bucket(uses.iter().map(bag).collect()));
    }
    refers.vertex(What::Other)
}

/// A number that another count of references, or of bytes, hardly has: counts of many bags are kept for being compared only.
pub fn tally(objects: u64, bytes: u64) -> u32 {
    let mixed = objects.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bytes.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let [.., a, b, c, d] = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Gathers references.
struct Refers<'a> {
    bags: &'a Bags,
    edges: Vec<Edge>,
    to: BTreeMap<BagNo, (u32, u64)>,
    broken: BTreeSet<BagNo>,
    wrong: Option<Wrong>,
}

impl<'a> Refers<'a> {
    fn new(bags: &'a Bags) -> Self {
        Self { bags, edges: Vec::new(), to: BTreeMap::new(), broken: BTreeSet::new(), wrong: None }
    }

    fn vertex(self, what: What) -> Vertex {
        Vertex {
            what,
            edges: self.edges.into(),
            bags: self.to.into_iter().map(|(bag, (objects, bytes))| (bag, objects, bytes)).collect(),
            broken: self.broken.into_iter().collect(),
            wrong: self.wrong,
        }
    }

    fn page(&mut self, page: &Page) -> What {
        let last = match page {
            Page::Leaf(entries) => {
                entries.iter().for_each(|entry| self.entry(entry));
                entries.last().map(|entry| &entry.name)
            }
            Page::Index(children) => {
                for child in children {
                    let want = Want::Page(child.entries, blake3::hash(&child.last));
                    self.tree(&child.page, want);
                }
                children.last().map(|child| &child.last)
            }
        };
        let entries = match page {
            Page::Leaf(entries) => u64::try_from(entries.len()).unwrap_or(u64::MAX),
            Page::Index(children) => check::child_entries(children),
        };
        What::Page { entries, last: blake3::hash(last.map_or(&[][..], |name| name)) }
    }

    fn list(&mut self, list: &List) {
        match list {
            List::Pieces(pieces) => self.pieces(pieces),
            List::Parts(parts) => self.parts(parts),
        }
    }

    fn entry(&mut self, entry: &Entry) {
        if let Err(wrong) = check::file_size(entry) {
            self.wrong = Some(wrong);
        }
        for xattr in &entry.xattrs {
            if let XattrValue::Chunk(reference) = &xattr.value {
                self.chunk(reference);
            }
        }
        match &entry.content {
            Content::Pieces(pieces) => self.pieces(pieces),
            Content::Lists { parts, .. } => self.parts(parts),
            Content::Directory(Some(page)) => self.tree(page, Want::Directory),
            _ => {}
        }
    }

    fn pieces(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if let Piece::Chunk(reference) = piece {
                self.chunk(reference);
            }
        }
    }

    fn parts(&mut self, parts: &[ListPart]) {
        parts.iter().for_each(|part| self.tree(&part.list, Want::List(part.bytes)));
    }

    fn count(&mut self, bag: BagNo, reference: &Reference) {
        let (objects, bytes) = self.to.entry(bag).or_default();
        *objects = objects.saturating_add(1);
        *bytes = bytes.saturating_add(u64::from(reference.place.len));
    }

    fn chunk(&mut self, reference: &Reference) {
        let target = self.bags.target(BagKind::Data, reference);
        self.count(target.bag, reference);
        if !target.holds {
            self.broken.insert(target.bag);
        }
    }

    fn tree(&mut self, reference: &Reference, want: Want) {
        let target = self.bags.target(BagKind::Tree, reference);
        self.count(target.bag, reference);
        self.edges.push(Edge { bag: target.bag, node: target.node, want });
    }
}

/// The bags of an entry's references that do not hold what is referred to; objects of tree bags are not looked into.
pub fn broken_directly(bags: &Bags, entry: &Entry) -> BTreeSet<BagNo> {
    let targets = reader::references(entry).map(|(kind, reference)| bags.target(kind, &reference));
    targets.filter(|target| !target.holds).map(|target| target.bag).collect()
}
