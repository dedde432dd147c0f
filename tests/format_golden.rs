//! The golden files of `doc/format.md` below `testdata/format/v1/`: each is decoded, and encoded again to the same bytes.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kitbag::bag::Sealing;
use kitbag::bag::format::{self as bag_format, BagKind, HEADER, TRAILER, Table, TableBlock};
use kitbag::bag::moved::{self, Move};
use kitbag::bag::reader::BagReader;
use kitbag::base::codec;
use kitbag::base::id::{BagId, GenerationId, ObjectId, RepositoryId};
use kitbag::base::secret::Key32;
use kitbag::base::time::Timestamp;
use kitbag::condemned::{self, Doomed, Waits};
use kitbag::crypto::{Keys, Kind, MasterKey};
use kitbag::dir::format::{Child, List, Page, decode_list, decode_page, encode_list, encode_page};
use kitbag::dir::places::Places;
use kitbag::entry::{
    Content, Entry, Kind as EntryKind, ListPart, Metadata, Owner, Piece, Place, Reference, Xattr, XattrValue,
};
use kitbag::generation::format::{decode_bucket, decode_record, encode_bucket, encode_record};
use kitbag::generation::tags;
use kitbag::generation::{BagListRef, BagUse, Counts, Generation, Root};
use kitbag::store::layout;
use kitbag::store::testing::MemoryStore;

fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/format/v1").join(name)).unwrap()
}

fn same(name: &str, bytes: &[u8]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(bytes), hex(&golden(name)), "{name}");
}

fn keys() -> Keys {
    Keys::derive(&MasterKey::new(Key32::new([1; 32])))
}

fn reference(id: u8, bag: u8, offset: u64, stored: u32, (start, len): (u32, u32)) -> Reference {
    Reference { id: ObjectId([id; 32]), place: Place { bag: BagId([bag; 16]), offset, stored, start, len } }
}

/// Two in one block, one at the beginning of the next, one elsewhere.
fn four_references() -> Vec<Reference> {
    vec![
        reference(0xa1, 0xb1, 32, 1000, (0, 300)),
        reference(0xa2, 0xb1, 32, 1000, (300, 5)),
        reference(0xa3, 0xb1, 1032, 77, (0, 9)),
        reference(0xa4, 0xb2, 4096, 200, (16, 100)),
    ]
}

#[test]
fn places() {
    let places = Places::from_slice(&four_references());
    same("places", &codec::encode(&places));
    let decoded: Places = codec::decode(&golden("places"), "places", 1 << 10).unwrap();
    assert_eq!(decoded.to_vec().unwrap(), four_references());
}

fn metadata(kind: EntryKind, mode: u16, owner: &Arc<Owner>) -> Metadata {
    Metadata {
        kind,
        mode,
        owner: Arc::clone(owner),
        mtime: Timestamp { secs: 1_796_000_000, nanos: 5 },
        ctime: Timestamp { secs: -1, nanos: 0 },
        inode: 7,
        size: 0,
        link_group: None,
        rdev: (0, 0),
        flags: 0,
    }
}

fn entry(name: &str, metadata: Metadata, content: Content) -> Entry {
    Entry { name: name.as_bytes().into(), metadata, xattrs: Vec::new(), content }
}

fn leaf() -> Page {
    let user = Arc::new(Owner { uid: 1000, gid: 100, user: (*b"ann").into(), group: (*b"users").into() });
    let root = Arc::new(Owner::default());
    let [first, second, third, fourth] = four_references()[..] else { panic!("four") };
    let mut file = metadata(EntryKind::File, 0o644, &user);
    file.size = 300 + 4096;
    file.link_group = Some((2, 7));
    file.flags = 0x10;
    let mut inline = metadata(EntryKind::File, 0o4755, &root);
    inline.size = 2;
    let mut device = metadata(EntryKind::BlockDevice, 0o660, &root);
    device.rdev = (8, 1);
    let mut long = metadata(EntryKind::File, 0o600, &user);
    long.size = 1 << 32;
    let mut a = entry("a", file, Content::Pieces(vec![Piece::Chunk(first), Piece::Hole(4096)]));
    a.xattrs = vec![
        Xattr { name: (*b"user.l").into(), value: XattrValue::Chunk(second) },
        Xattr { name: (*b"user.s").into(), value: XattrValue::Inline((*b"v").into()) },
    ];
    Page::Leaf(vec![
        a,
        entry("b", inline, Content::Inline((*b"hi").into())),
        entry("c", metadata(EntryKind::Directory, 0o755, &user), Content::Directory(Some(third))),
        entry("d", metadata(EntryKind::Directory, 0o700, &user), Content::Directory(None)),
        entry("e", metadata(EntryKind::Symlink, 0o777, &user), Content::Target((*b"a").into())),
        entry("f", device, Content::Empty),
        entry("g", long, Content::Lists { depth: 1, parts: vec![ListPart { list: fourth, bytes: 1 << 32 }] }),
    ])
}

#[test]
fn tags_of_a_generation() {
    let all = ["before the move", "keep"].map(str::to_owned).into();
    same("tags", &tags::encode(&all));
    assert_eq!(tags::decode(&golden("tags")).unwrap(), all);
}

#[test]
fn pages() {
    same("page-leaf", &encode_page(&leaf()));
    assert_eq!(decode_page(&golden("page-leaf")).unwrap(), leaf());
    let [.., third, fourth] = four_references()[..] else { panic!("four") };
    let index = Page::Index(vec![
        Child { last: (*b"k").into(), entries: 250, page: third },
        Child { last: (*b"zoo").into(), entries: 3, page: fourth },
    ]);
    same("page-index", &encode_page(&index));
    assert_eq!(decode_page(&golden("page-index")).unwrap(), index);
}

#[test]
fn lists() {
    let [first, second, third, _] = four_references()[..] else { panic!("four") };
    let pieces = List::Pieces(vec![Piece::Chunk(first), Piece::Hole(1 << 20), Piece::Chunk(second)]);
    same("list-pieces", &encode_list(&pieces));
    assert_eq!(decode_list(&golden("list-pieces")).unwrap(), pieces);
    let parts = List::Parts(vec![ListPart { list: third, bytes: 70_000 }]);
    same("list-parts", &encode_list(&parts));
    assert_eq!(decode_list(&golden("list-parts")).unwrap(), parts);
}

#[test]
fn records() {
    let [first, .., third, _] = four_references()[..] else { panic!("four") };
    let user = Arc::new(Owner { uid: 1000, gid: 100, user: (*b"ann").into(), group: (*b"users").into() });
    let top = entry("root", metadata(EntryKind::Directory, 0o755, &user), Content::Directory(Some(first)));
    let generation = Generation {
        id: GenerationId([6; 8]),
        client: "laptop".into(),
        host: "host".into(),
        started: Timestamp { secs: 1_796_000_000, nanos: 5 },
        ended: Timestamp { secs: 1_796_000_009, nanos: 0 },
        partial: false,
        roots: vec![Root { path: b"/home".to_vec(), entry: top }],
        counts: Counts {
            files: 1,
            directories: 2,
            others: 3,
            bytes: 4,
            failed: 5,
            new_bytes: 6,
            stored_bytes: 7,
        },
        options: vec!["--one-file-system".into()],
        tags: vec!["keep".into()],
        bag_list: BagListRef { bits: 0, buckets: vec![third] },
    };
    same("generation", &encode_record(&generation));
    assert_eq!(decode_record(&golden("generation")).unwrap(), generation);
}

#[test]
fn buckets() {
    let uses = [
        BagUse { bag: BagId([0xb1; 16]), kind: BagKind::Data, objects: 2, bytes: 305 },
        BagUse { bag: BagId([0xb2; 16]), kind: BagKind::Tree, objects: 1, bytes: 100 },
    ];
    same("bucket", &encode_bucket(&uses));
    assert_eq!(decode_bucket(&golden("bucket")).unwrap(), uses);
}

/// A block or a table before it is sealed: codec 0, length, contents.
fn plain(contents: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(contents.len()).unwrap().to_le_bytes()[..], contents].concat()
}

#[test]
fn a_bag() {
    let (id, repository) = (BagId([0xb1; 16]), RepositoryId([5; 16]));
    let keys = keys();
    let objects = [&b"first"[..], b"second"].map(|bytes| (keys.hash().object_id(bytes), bytes));
    let block =
        TableBlock { offset: 32, stored: 56, objects: vec![(objects[0].0, 0, 5), (objects[1].0, 5, 6)] };
    let table = Table { blocks: vec![block] };
    let bytes = golden("bag");
    let (head, trailer) = bytes.split_at(bytes.len() - TRAILER);
    assert_eq!(head[..HEADER], bag_format::encode_header(id, BagKind::Data));
    let (offset, len) = bag_format::decode_trailer(trailer, bytes.len() as u64).unwrap();
    assert_eq!(trailer[..32], bag_format::encode_trailer_head(offset, len));
    assert_eq!(*blake3::hash(&bytes[..bytes.len() - 32]).as_bytes(), trailer[32..]);

    let memory = MemoryStore::new();
    memory.put(&layout::bag(id), bytes.clone());
    let reader = BagReader::new(Arc::new(memory), Sealing { keys: keys.clone(), repository });
    let found = reader.find_table(id).unwrap();
    assert_eq!((&*found.table, found.offset, found.len), (&table, 88, len));
    for (reference, (_, contents)) in table.references(id).zip(objects) {
        let block = reader.block(BagKind::Data, &reference.place).unwrap();
        assert_eq!(reader.object(&reference, &block).unwrap(), contents);
    }
    // What is sealed is encoded again to the same plaintext; nonces are random.
    let context = kitbag::crypto::Context { repository, kind: Kind::BagTable, file: id.as_bytes(), offset };
    let opened = keys.seal().open(&context, &bytes[88..bytes.len() - TRAILER]).unwrap();
    assert_eq!(opened, plain(&bag_format::encode_table(&table)));
}

#[test]
fn condemned_and_moved() {
    let [first, second] = [0xb1, 0xb2].map(|bag| BagId([bag; 16]));
    let list = condemned::List {
        dead: [first].into(),
        emptied: [second].into(),
        thinned: BTreeSet::new(),
        seen: [GenerationId([6; 8])].into(),
    };
    same("condemned", &list.encode());
    assert_eq!(condemned::List::decode(&golden("condemned")).unwrap(), list);
    let waits: Waits = [6, 7].map(|id| GenerationId([id; 8])).into_iter().collect();
    same("condemned-waits", &waits.encode());
    assert_eq!(Waits::decode(&golden("condemned-waits")).unwrap(), waits);
    let doomed = Doomed { bags: [first].into() };
    same("condemned-doomed", &doomed.encode());
    assert_eq!(Doomed::decode(&golden("condemned-doomed")).unwrap(), doomed);
    let to = |start, len| Place { bag: BagId([0xb3; 16]), offset: 32, stored: 900, start, len };
    let [one, other, ..] = four_references()[..] else { panic!("four") };
    let moves = [Move { from: one.place, to: to(0, 300) }, Move { from: other.place, to: to(300, 5) }];
    same("moved", &moved::format::encode(&moves));
    assert_eq!(moved::format::decode(&golden("moved")).unwrap(), moves);
}
