//! Those who use the store.

use std::sync::{Arc, Mutex};

use kitbag::bag::source::Source;
use kitbag::bag::{BagKind, Packer, PackerEvents, PackerOptions, StoredBag};
use kitbag::base::id::{BagId, ClientId, GenerationId};
use kitbag::base::time::Timestamp;
use kitbag::compress::Level;
use kitbag::condemned::reading::{self, Names};
use kitbag::crypto::Kind;
use kitbag::entry::{Content, Entry, Kind as EntryKind, Metadata, Owner, Piece, Reference};
use kitbag::gc::{self, Options};
use kitbag::generation::format::encode_bucket;
use kitbag::generation::{
    BagCounter, BagListRef, Catalog, Counts, Generation, Root, Session, Started, leases,
};
use kitbag::index::{Fingerprint, Segment, SegmentBag};
use kitbag::monitor::Monitor;
use kitbag::monitor::collect::Collect;
use kitbag::reach::Custody;
use kitbag::repo::{Repository, Stored};
use kitbag::sealed;
use kitbag::store::testing::MemoryStore;
use kitbag::store::{SharedStore, layout};

use super::search::Actor;
use crate::bench::noise;

/// Rules that a backup keeps; a test lets it break one.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// No fresh reference is made to what is condemned.
    pub excludes: bool,
    /// Nothing is taken over from a generation that may refer to what is condemned.
    pub suspects: bool,
    /// The session is created before anything is read.
    pub lease_first: bool,
    /// The table of a bag is asked whether the bag is there.
    pub asks_tables: bool,
    /// What is not published when a session follows another is looked at once more.
    pub renews: bool,
}

/// All of them.
pub const ALL: Rules =
    Rules { excludes: true, suspects: true, lease_first: true, asks_tables: true, renews: true };

/// What somebody else does.
pub type Meanwhile = Arc<dyn Fn(&Repository) + Send + Sync>;

/// What a backup saves.
#[derive(Clone)]
pub struct Plan {
    pub client: &'static str,
    /// The contents of its files, by a number.
    pub objects: Vec<u64>,
    /// Publishes a checkpoint that lacks the last of them, and goes on with another session.
    pub checkpoint: bool,
    /// Stores them in one bag.
    pub together: bool,
    pub rules: Rules,
    /// What somebody else does when the session has begun.
    pub meanwhile: Option<Meanwhile>,
}

impl Plan {
    pub fn new(client: &'static str, objects: &[u64]) -> Self {
        Self {
            client,
            objects: objects.to_vec(),
            checkpoint: false,
            together: false,
            rules: ALL,
            meanwhile: None,
        }
    }

    pub fn actor(self, stored: &Stored) -> Actor {
        let stored = stored.clone();
        let run = move |store: SharedStore| {
            let repository = stored.unlock(store, &mut |_| None).unwrap();
            // Who is stopped or revoked publishes nothing more.
            let _ = backup(&repository, &self);
        };
        Actor { run: Arc::new(run), sabotage: None }
    }
}

/// Saves files without directories: each a root of one chunk.
pub fn backup(repository: &Repository, plan: &Plan) -> Option<()> {
    let client = repository.keys().names().client_id(plan.client.as_bytes());
    let sealing = repository.sealing();
    let store = repository.store();
    let early = (!plan.rules.lease_first).then(|| store.list(&layout::directory("condemned")).wait());
    let Started { mut session, condemned, index, generations } = Session::begin(store, &sealing, client);
    let names = Names::of(&match early {
        Some(early) => early.ok()?,
        None => condemned.wait().ok()?,
    });
    let (index, generations) = (index.wait().ok()?, generations.wait().ok()?);
    session.created().ok()?;
    let custody = Custody(reading::ask(store, &sealing, &names).wait().ok()?);
    if let Some(meanwhile) = &plan.meanwhile {
        meanwhile(repository);
    }
    let catalog = Catalog::new(store.clone(), sealing.clone());
    let ids = Catalog::ids(&generations);
    let mut former: Vec<_> =
        catalog.read(client, &ids).into_iter().filter_map(|(_, record)| record.ok()).collect();
    let source = Source::new(repository.bags(), 1 << 20);
    if plan.rules.suspects {
        former = custody.clean(&source, former, &Collect::new()).ok()?;
    }
    former.sort_by_key(|one| one.started);
    let mut segments = Vec::new();
    for id in index.iter().filter_map(|file| file.name.parse().ok()) {
        let name = layout::segment(id);
        let Ok(bytes) = store.read_all(&name, 1 << 20).wait() else { continue };
        let plaintext =
            sealed::decode(repository.keys(), repository.id(), Kind::Segment, &name, bytes, 1 << 20).unwrap();
        segments.extend(Segment::decode(&plaintext).unwrap().bags);
    }
    let mut run = Run {
        repository,
        client,
        plan,
        former,
        segments,
        custody,
        fresh: Vec::new(),
        written: Vec::new(),
        roots: Vec::new(),
        packed: Vec::new(),
    };
    if plan.together {
        let all: Vec<_> = plan.objects.iter().map(|object| noise(*object, 600)).collect();
        run.packed = run.pack_all(BagKind::Data, &all)?;
    }
    let (last, first) = plan.objects.split_last()?;
    first.iter().try_for_each(|object| run.save(*object))?;
    let mut partial = None;
    if plan.checkpoint {
        run.save(*last)?;
        let held = run.roots.pop();
        let generation = run.generation(&session, true)?;
        let Started { session: mut next, condemned, index, generations } =
            Session::begin(store, &sealing, client);
        let names = Names::of(&condemned.wait().ok()?);
        let (_, listed) = (index.wait().ok()?, Catalog::ids(&generations.wait().ok()?));
        let custody = Custody(reading::ask(store, &sealing, &names).wait().ok()?);
        next.created().ok()?;
        let compared: Vec<_> = run.former.iter().collect();
        let fresh = run.fresh.iter().copied().collect();
        let holds_good = custody.holds_good(&source, &fresh, &compared, &listed).ok()?;
        session.fill(&generation).ok()?;
        partial = Some(session.id());
        session.publish().ok()?;
        if plan.rules.renews && !holds_good {
            return None;
        }
        run.custody = custody;
        run.roots.extend(held);
        session = next;
    } else {
        run.save(*last)?;
    }
    let generation = run.generation(&session, false)?;
    session.fill(&generation).ok()?;
    session.publish().ok()?;
    if let Some(partial) = partial {
        store.remove(&layout::generation(client, partial)).wait().ok()?;
    }
    Some(())
}

struct Run<'a> {
    repository: &'a Repository,
    client: ClientId,
    plan: &'a Plan,
    former: Vec<Generation>,
    segments: Vec<SegmentBag>,
    custody: Custody,
    fresh: Vec<BagId>,
    written: Vec<SegmentBag>,
    roots: Vec<Root>,
    /// Objects that were stored together.
    packed: Vec<Reference>,
}

#[derive(Default)]
struct Stores(Mutex<Vec<SegmentBag>>);

impl PackerEvents for Stores {
    fn placed(&self) {}
    fn queued(&self, _bytes: u64) {}
    fn stored(&self, bag: &StoredBag) {
        self.0.lock().unwrap().push(SegmentBag::from(bag));
    }
}

impl Run<'_> {
    fn save(&mut self, object: u64) -> Option<()> {
        let bytes = noise(object, 600);
        let path = format!("/{object}").into_bytes();
        let former = self.former.iter().rev().flat_map(|one| &one.roots).find(|root| root.path == path);
        let content = match former {
            Some(root) => root.entry.content.clone(),
            None => Content::Pieces(vec![Piece::Chunk(self.chunk(&bytes)?)]),
        };
        let owner = Arc::new(Owner::default());
        let zero = Timestamp::default();
        let metadata = Metadata {
            kind: EntryKind::File,
            mode: 0o644,
            owner,
            mtime: zero,
            ctime: zero,
            inode: 1,
            size: 600,
            link_group: None,
            rdev: (0, 0),
            flags: 0,
        };
        let entry = Entry { name: (*b"root").into(), metadata, xattrs: Vec::new(), content };
        self.roots.push(Root { path, entry });
        Some(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Option<Reference> {
        let reader = self.repository.bags();
        let id = reader.id_of(bytes);
        if let Some(packed) = self.packed.iter().find(|one| one.id == id) {
            return Some(*packed);
        }
        let own = self.written.iter().map(|bag| bag.entry().bag).collect::<Vec<_>>();
        let forbidden = self.custody.forbidden();
        let candidates: Vec<_> = self
            .segments
            .iter()
            .chain(&self.written)
            .filter(|bag| bag.fingerprints().contains(&Fingerprint::of(&id)))
            .map(|bag| *bag.entry())
            .filter(|bag| {
                own.contains(&bag.bag) || !self.plan.rules.excludes || !forbidden.contains(&bag.bag)
            })
            .collect();
        for entry in candidates {
            let table = match reader.table_at(entry.bag, entry.table_offset, entry.table_len) {
                Ok(table) => table,
                // Whoever does not ask believes what the index says.
                Err(_) if !self.plan.rules.asks_tables => {
                    let place =
                        kitbag::entry::Place { bag: entry.bag, offset: 32, stored: 100, start: 0, len: 600 };
                    return Some(Reference { id, place });
                }
                Err(_) => continue,
            };
            if let Some(found) = table.references(entry.bag).find(|one| one.id == id) {
                self.fresh.push(entry.bag);
                return Some(found);
            }
        }
        self.pack(BagKind::Data, bytes)
    }

    fn pack(&mut self, kind: BagKind, bytes: &[u8]) -> Option<Reference> {
        self.pack_all(kind, &[bytes.to_vec()])?.pop()
    }

    /// Stores objects in one bag.
    fn pack_all(&mut self, kind: BagKind, all: &[Vec<u8>]) -> Option<Vec<Reference>> {
        let store = self.repository.store();
        let events = Arc::new(Stores::default());
        let options = PackerOptions { streams: 1, ..PackerOptions::new(Level::Off, 1) };
        let packer =
            Packer::new([store.clone(), store.clone()], self.repository.sealing(), options, events.clone());
        let put = |bytes: &Vec<u8>| packer.put(kind, self.repository.bags().id_of(bytes), bytes).ok();
        let placings: Vec<_> = all.iter().map(put).collect::<Option<_>>()?;
        packer.quiesce().ok()?;
        packer.finish().ok()?;
        let stored = std::mem::take(&mut *events.0.lock().unwrap());
        self.fresh.extend(stored.iter().map(|bag| bag.entry().bag));
        self.written.extend(stored);
        placings.iter().map(kitbag::bag::Placing::get).collect()
    }

    /// The generation of what was saved, everything that it needs being stored and listed.
    fn generation(&mut self, session: &Session, partial: bool) -> Option<Generation> {
        let mut counter = BagCounter::default();
        for root in &self.roots {
            if let Content::Pieces(pieces) = &root.entry.content
                && let [Piece::Chunk(chunk)] = &pieces[..]
            {
                counter.add(BagKind::Data, chunk);
            }
        }
        let (bits, buckets) = counter.buckets();
        let known: Vec<Reference> = self.former.iter().flat_map(|one| one.bag_list.buckets.clone()).collect();
        let mut references = Vec::new();
        for bucket in buckets {
            let bytes = encode_bucket(&bucket);
            let id = self.repository.bags().id_of(&bytes);
            references.push(match known.iter().find(|one| one.id == id) {
                Some(reference) => *reference,
                None => self.pack(BagKind::Tree, &bytes)?,
            });
        }
        if !self.written.is_empty() {
            let segment = Segment { bags: std::mem::take(&mut self.written) };
            session.publish_segment(&segment.encode()).wait().ok()?;
            self.segments.extend(segment.bags);
        }
        let newest = self.former.last().map_or(0, |one| one.started.secs);
        let at = Timestamp { secs: newest + 10 + i64::from(!partial), nanos: 0 };
        Some(Generation {
            id: session.id(),
            client: self.plan.client.into(),
            host: "host".into(),
            started: at,
            ended: at,
            partial,
            roots: self.roots.clone(),
            counts: Counts::default(),
            options: Vec::new(),
            tags: Vec::new(),
            bag_list: BagListRef { bits, buckets: references },
        })
        .map(|mut generation| {
            generation.roots.sort_by(|one, other| one.path.cmp(&other.path));
            let _ = self.client;
            generation
        })
    }
}

/// Collects so many times.
pub fn collector(stored: &Stored, options: &Options, times: usize) -> Actor {
    let (stored, options) = (stored.clone(), options.clone());
    let run = move |store: SharedStore| {
        let repository = stored.unlock(store, &mut |_| None).unwrap();
        for _ in 0..times {
            let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
            if gc::run(&repository, &options, &monitor, &Default::default()).is_err() {
                return;
            }
        }
    };
    Actor { run: Arc::new(run), sabotage: None }
}

/// Forgets all generations of a client that are there when it looks.
pub fn forget_all(client: ClientId) -> Actor {
    let run = move |store: SharedStore| {
        let listed = store.list(&layout::generations(client)).wait().unwrap_or_default();
        for id in Catalog::ids(&listed) {
            drop(store.remove(&layout::generation(client, id)).wait());
        }
    };
    Actor { run: Arc::new(run), sabotage: None }
}

/// Revokes the sessions of a client that are there when it looks.
pub fn revoker(client: ClientId) -> Actor {
    let run = move |store: SharedStore| {
        let listed = store.list(&layout::directory("sessions")).wait().unwrap_or_default();
        for held in leases::of(&listed).into_iter().filter(|held| held.client == client) {
            drop(leases::revoke(&*store, held.client, held.id));
        }
    };
    Actor { run: Arc::new(run), sabotage: None }
}

/// That all generations can be read.
pub fn check(stored: &Stored, memory: &MemoryStore) -> Result<(), String> {
    let repository = stored.unlock(Arc::new(memory.clone()), &mut |_| None).unwrap();
    let reader = repository.bags();
    for name in memory.names_below("generations") {
        let mut parts = name.as_str().split('/').skip(1);
        let client: ClientId = parts.next().unwrap().parse().unwrap();
        let id: GenerationId = parts.next().unwrap().parse().unwrap();
        let bytes = memory.contents(&name).unwrap();
        let generation = repository.catalog().open(client, id, bytes).map_err(|error| error.to_string())?;
        let mut references: Vec<(BagKind, Reference)> =
            generation.bag_list.buckets.iter().map(|bucket| (BagKind::Tree, *bucket)).collect();
        for root in &generation.roots {
            references.extend(kitbag::dir::reader::references(&root.entry));
        }
        for (kind, reference) in references {
            let read = reader.block(kind, &reference.place);
            let read = read.and_then(|block| reader.object(&reference, &block).map(drop));
            read.map_err(|error| {
                format!("generation {id} of {} cannot be read: {error}", generation.client)
            })?;
        }
    }
    Ok(())
}
