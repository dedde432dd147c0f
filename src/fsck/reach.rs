//! What generations need: by walking the graph of pages, and by their bag lists; both must agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::bags::{BagNo, Bags, Node, index};
use super::graph::{Edge, Graph, Vertex, What, tally};
use crate::base::id::{BagId, ClientId};
use crate::generation::Generation;
use crate::generation::baglist::bucket_of;

/// A generation and the references in its record.
pub struct Held {
    /// Whose it is.
    pub client: ClientId,
    /// Its record.
    pub record: Generation,
    /// The references of each root's entry.
    pub roots: Vec<Vertex>,
    /// The buckets of its bag list.
    pub buckets: Vec<Edge>,
}

/// What the walk of one generation found.
#[derive(Debug, Default)]
pub struct Found {
    /// Bags that do not hold what the generation refers to.
    pub culprits: BTreeSet<BagNo>,
    /// Bags that hold something else than what is referred to.
    pub strange: BTreeSet<BagNo>,
    /// What is wrong with the pages themselves, by bag.
    pub wrongs: BTreeMap<BagNo, String>,
    /// Bags that it needs and its bag list leaves out.
    pub unlisted: Vec<BagId>,
    /// Bags that its list names and it does not need.
    pub unneeded: Vec<BagId>,
    /// Bags of which its list does not say how much is needed.
    pub miscounted: Vec<BagId>,
    /// What is wrong with its bag list itself.
    pub list_wrong: Option<&'static str>,
}

/// Walks generations, one after another.
pub struct Reach<'a> {
    bags: &'a Bags,
    graph: &'a Graph<'a>,
    /// Per object and per bag, the walk that came there last.
    nodes: Vec<u32>,
    /// How often the generation that is being walked has each object.
    times: Vec<u64>,
    needed: Vec<u32>,
    listed: Vec<u32>,
    walk: u32,
}

/// What a walk has still to do.
enum Open {
    Enter(Node, BagNo),
    Leave(Node),
}

/// Where an edge leads.
pub enum Step<'a> {
    /// To an object that is what was expected.
    To(Node, &'a Vertex),
    /// To something else.
    Strange,
    /// Nowhere that can be read.
    Nowhere,
}

/// Follows an edge.
pub fn step<'a>(graph: &'a Graph<'_>, edge: &Edge) -> Step<'a> {
    match edge.node.and_then(|node| Some((node, graph.get(node)?))) {
        None => Step::Nowhere,
        Some((node, vertex)) if vertex.is(edge.want) => Step::To(node, vertex),
        Some(_) => Step::Strange,
    }
}

impl<'a> Reach<'a> {
    /// Nothing walked yet. All references must be known to `bags` by now.
    pub fn new(bags: &'a Bags, graph: &'a Graph<'a>) -> Self {
        let numbers = bags.numbers();
        Self {
            bags,
            graph,
            nodes: vec![0; graph.len()],
            times: vec![0; graph.len()],
            needed: vec![0; numbers],
            listed: vec![0; numbers],
            walk: 0,
        }
    }

    /// Walks a generation: each of its objects once.
    pub fn walk(&mut self, held: &Held) -> Found {
        self.walk = self.walk.saturating_add(1);
        let mut found = Found::default();
        let mut open = Vec::new();
        for root in &held.roots {
            self.visit(root, None, &mut open, &mut found);
        }
        // Those that are entered, and again when all below them were: so each comes behind whatever it refers to.
        let mut order = Vec::new();
        while let Some(next) = open.pop() {
            match next {
                Open::Enter(node, bag) => {
                    if stamp(&mut self.nodes, node, self.walk)
                        && let Some(vertex) = self.graph.get(node)
                    {
                        open.push(Open::Leave(node));
                        self.visit(vertex, Some(bag), &mut open, &mut found);
                    }
                }
                Open::Leave(node) => order.push(node),
            }
        }
        let needs = self.count(held, &order);
        self.list(held, &needs, &mut found);
        found
    }

    /// The bags that some generation needs or lists.
    pub fn is_used(&self, bag: BagNo) -> bool {
        let stamped = |stamps: &[u32]| stamps.get(index(bag)).is_some_and(|walk| *walk > 0);
        stamped(&self.needed) || stamped(&self.listed)
    }

    fn visit(&mut self, vertex: &Vertex, own: Option<BagNo>, open: &mut Vec<Open>, found: &mut Found) {
        for (bag, ..) in &vertex.bags {
            stamp(&mut self.needed, *bag, self.walk);
        }
        found.culprits.extend(vertex.broken.iter());
        if let (Some(own), Some(wrong)) = (own, &vertex.wrong) {
            found.wrongs.insert(own, wrong.clone());
        }
        for edge in &vertex.edges {
            match step(self.graph, edge) {
                Step::Nowhere => drop(found.culprits.insert(edge.bag)),
                Step::Strange => drop(found.strange.insert(edge.bag)),
                Step::To(node, _) => open.push(Open::Enter(node, edge.bag)),
            }
        }
    }

    /// How many references the generation has into each bag, and to how many bytes: whatever it has twice counts twice. `order` is that of its objects, each behind what it refers to.
    fn count(&mut self, held: &Held, order: &[Node]) -> HashMap<BagNo, (u64, u64)> {
        let mut needs: HashMap<BagNo, (u64, u64)> = HashMap::new();
        let (graph, times) = (self.graph, &mut self.times);
        let mut take = |vertex: &Vertex, often: u64, times: &mut [u64]| {
            for (bag, objects, bytes) in &vertex.bags {
                let need = needs.entry(*bag).or_default();
                need.0 = need.0.saturating_add(u64::from(*objects).saturating_mul(often));
                need.1 = need.1.saturating_add(bytes.saturating_mul(often));
            }
            for edge in &vertex.edges {
                if let Step::To(node, _) = step(graph, edge)
                    && let Some(below) = times.get_mut(index(node))
                {
                    *below = below.saturating_add(often);
                }
            }
        };
        held.roots.iter().for_each(|root| take(root, 1, times));
        for node in order.iter().rev() {
            let often = times.get_mut(index(*node)).map_or(0, std::mem::take);
            if let Some(vertex) = graph.get(*node) {
                take(vertex, often, times);
            }
        }
        needs
    }

    /// Compares the bag list with what the walk has found.
    fn list(&mut self, held: &Held, needs: &HashMap<BagNo, (u64, u64)>, found: &mut Found) {
        let bits = held.record.bag_list.bits;
        let mut all_read = true;
        let mut names = Vec::new();
        for (at, edge) in held.buckets.iter().enumerate() {
            // The bags of the buckets are needed and not listed.
            stamp(&mut self.listed, edge.bag, self.walk);
            let bucket = match step(self.graph, edge) {
                Step::To(_, Vertex { what: What::Bucket(bucket), .. }) => bucket,
                Step::To(..) | Step::Strange => {
                    found.strange.insert(edge.bag);
                    all_read = false;
                    continue;
                }
                Step::Nowhere => {
                    found.culprits.insert(edge.bag);
                    all_read = false;
                    continue;
                }
            };
            for (bag, kind, said) in bucket {
                let is = needs.get(bag).map(|(objects, bytes)| tally(*objects, *bytes));
                // A checkpoint's list says more than it needs; of what cannot be read, nobody knows what it needs.
                let is_known = !held.record.partial && found.culprits.is_empty() && found.strange.is_empty();
                if is_known && is.is_some_and(|is| is != *said) {
                    found.miscounted.extend(self.bags.id_of(*bag));
                }
                let id = self.bags.id_of(*bag);
                let sound = self.bags.get(*bag).and_then(|bag| bag.sound.as_ref());
                if sound.is_some_and(|sound| sound.entry.kind != *kind) {
                    found.list_wrong = Some("its bag list takes a bag for one of another kind");
                }
                if id.is_some_and(|id| bucket_of(id, bits) != at) {
                    found.list_wrong = Some("its bag list names a bag in another bucket than its own");
                }
                names.push(*bag);
            }
        }
        let own: BTreeSet<_> = held.buckets.iter().map(|edge| edge.bag).collect();
        for bag in &names {
            stamp(&mut self.listed, *bag, self.walk);
            // A checkpoint lists all that the generations need that it was compared with.
            if !held.record.partial && !has(&self.needed, *bag, self.walk) {
                found.unneeded.extend(self.bags.id_of(*bag));
            }
        }
        let named: BTreeSet<_> = names.into_iter().collect();
        if all_read {
            let needed = (0..).zip(&self.needed).filter(|(_, walk)| **walk == self.walk);
            let unlisted =
                needed.map(|(bag, _)| bag).filter(|bag| !named.contains(bag) && !own.contains(bag));
            found.unlisted = unlisted.filter_map(|bag| self.bags.id_of(bag)).collect();
        }
    }
}

/// Marks a number; whether it was not marked in this walk before.
fn stamp(stamps: &mut [u32], number: u32, walk: u32) -> bool {
    stamps.get_mut(index(number)).is_some_and(|stamp| std::mem::replace(stamp, walk) != walk)
}

fn has(stamps: &[u32], number: u32, walk: u32) -> bool {
    stamps.get(index(number)) == Some(&walk)
}
