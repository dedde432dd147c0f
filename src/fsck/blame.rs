//! Which paths a damaged bag hits.
//!
//! Names are not kept by the graph, so pages are read once more, but only those on the way to damage. This is the one part whose serial waits are
//! not bounded; it runs only when there is damage.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::FsckError;
use super::bags::{BagNo, Bags, Node, cancelled, index};
use super::graph::{Edge, Graph, Vertex, Want, broken_directly};
use super::reach::{Held, Step, step};
use crate::bag::BagKind;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::dir::format::Page;
use crate::dir::reader;
use crate::entry::{Content, Entry, Reference};

/// Paths remembered per bag.
const MOST_PATHS: usize = 1000;

/// Paths that a bag's damage hits.
#[derive(Debug, Default)]
pub struct Paths {
    /// Some of them.
    pub some: BTreeSet<Vec<u8>>,
    /// Whether there are more.
    pub more: bool,
}

/// Finds paths.
pub struct Blame<'a> {
    bags: &'a Bags,
    graph: &'a Graph<'a>,
    source: &'a Source,
    cancel: &'a Cancel,
    /// Objects from which damage can be reached.
    tainted: Vec<bool>,
    /// Pages seen under a path: generations share most.
    seen: HashSet<(Node, blake3::Hash)>,
    paths: BTreeMap<BagNo, Paths>,
}

impl<'a> Blame<'a> {
    /// Nobody blamed yet.
    pub fn new(bags: &'a Bags, graph: &'a Graph<'a>, source: &'a Source, cancel: &'a Cancel) -> Self {
        let tainted = taint(graph);
        Self { bags, graph, source, cancel, tainted, seen: HashSet::new(), paths: BTreeMap::new() }
    }

    /// Finds the paths of a generation that damage hits.
    ///
    /// # Errors
    /// When the user wants to end.
    pub fn generation(&mut self, held: &Held) -> Result<(), FsckError> {
        let mut open = Vec::new();
        for (root, vertex) in held.record.roots.iter().zip(&held.roots) {
            self.entry(&root.entry, &root.path, &mut open);
            for bag in &vertex.broken {
                self.hit(*bag, &root.path);
            }
        }
        while let Some((page, path)) = open.pop() {
            cancelled(self.cancel)?;
            self.page(&page, &path, &mut open);
        }
        Ok(())
    }

    /// What was found.
    pub fn finish(self) -> BTreeMap<BagNo, Paths> {
        self.paths
    }

    fn hit(&mut self, bag: BagNo, path: &[u8]) {
        let paths = self.paths.entry(bag).or_default();
        if paths.some.len() < MOST_PATHS {
            paths.some.insert(path.to_vec());
        } else if !paths.some.contains(path) {
            paths.more = true;
        }
    }

    /// Follows a reference to a page: `path` is the directory's.
    fn descend(&mut self, edge: &Edge, page: &Reference, path: &[u8], open: &mut Vec<(Reference, Vec<u8>)>) {
        match step(self.graph, edge) {
            Step::To(node, vertex) => {
                if vertex.wrong.is_some() {
                    self.hit(edge.bag, &as_directory(path));
                }
                let is_tainted = self.tainted.get(index(node)).copied().unwrap_or(true);
                if is_tainted && self.seen.insert((node, blake3::hash(path))) {
                    open.push((*page, path.to_vec()));
                }
            }
            Step::Strange | Step::Nowhere => self.hit(edge.bag, &as_directory(path)),
        }
    }

    fn page(&mut self, reference: &Reference, path: &[u8], open: &mut Vec<(Reference, Vec<u8>)>) {
        let Ok(page) = reader::page(self.source, reference) else {
            return self.hit(self.bags.number_of(reference.place.bag), &as_directory(path));
        };
        match page {
            Page::Leaf(entries) => {
                for entry in entries {
                    let mut below = path.to_vec();
                    if !below.ends_with(b"/") {
                        below.push(b'/');
                    }
                    below.extend_from_slice(&entry.name);
                    self.entry(&entry, &below, open);
                }
            }
            Page::Index(children) => {
                for child in children {
                    let target = self.bags.target(BagKind::Tree, &child.page);
                    let want = Want::Page(child.entries, blake3::hash(&child.last));
                    let edge = Edge { bag: target.bag, node: target.node, want };
                    self.descend(&edge, &child.page, path, open);
                }
            }
        }
    }

    fn entry(&mut self, entry: &Entry, path: &[u8], open: &mut Vec<(Reference, Vec<u8>)>) {
        if let Content::Directory(Some(page)) = &entry.content {
            let target = self.bags.target(BagKind::Tree, page);
            let edge = Edge { bag: target.bag, node: target.node, want: Want::Directory };
            self.descend(&edge, page, path, open);
        }
        let is_directory = matches!(entry.content, Content::Directory(_));
        for bag in broken_directly(self.bags, entry) {
            self.hit(bag, &if is_directory { as_directory(path) } else { path.to_vec() });
        }
        if matches!(entry.content, Content::Lists { .. }) {
            self.lists(&self.graph.of_entry(entry), path);
        }
    }

    /// The bags that are to blame for what is below a file's lists.
    fn lists(&mut self, file: &Vertex, path: &[u8]) {
        let mut seen = HashSet::new();
        let mut open: Vec<Edge> = file.edges.to_vec();
        while let Some(edge) = open.pop() {
            match step(self.graph, &edge) {
                Step::To(node, vertex) => {
                    if seen.insert(node) {
                        vertex.broken.iter().for_each(|bag| self.hit(*bag, path));
                        open.extend(vertex.edges.iter());
                    }
                }
                Step::Strange | Step::Nowhere => self.hit(edge.bag, path),
            }
        }
    }
}

/// A directory's path, to be told from a file's.
fn as_directory(path: &[u8]) -> Vec<u8> {
    if path.ends_with(b"/") { path.to_vec() } else { [path, b"/"].concat() }
}

/// Which objects lead to damage: those that refer to it, and whatever refers to these.
fn taint(graph: &Graph<'_>) -> Vec<bool> {
    let mut tainted = vec![false; graph.len()];
    let mut above: Vec<(Node, Node)> = Vec::new();
    let mut open = Vec::new();
    for node in (0..).take(graph.len()) {
        let Some(vertex) = graph.get(node) else { continue };
        let mut is_bad = !vertex.broken.is_empty() || vertex.wrong.is_some();
        for edge in &vertex.edges {
            match step(graph, edge) {
                Step::To(below, _) => above.push((below, node)),
                Step::Strange | Step::Nowhere => is_bad = true,
            }
        }
        if is_bad {
            open.push(node);
        }
    }
    above.sort_unstable();
    while let Some(node) = open.pop() {
        let Some(mark) = tainted.get_mut(index(node)) else { continue };
        if std::mem::replace(mark, true) {
            continue;
        }
        let first = above.partition_point(|(below, _)| *below < node);
        let parents = above.iter().skip(first).take_while(|(below, _)| *below == node);
        open.extend(parents.map(|(_, parent)| *parent));
    }
    tainted
}
