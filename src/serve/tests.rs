//! What a session allows, asked without a wire.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use bytes::Bytes;
use tempfile::TempDir;

use super::answer::Server;
use super::tree::Tree;
use super::*;
use crate::sftp::attrs::Attrs;
use crate::sftp::packet::flag;
use crate::sftp::reply::{Code, Hello, Reply};

const BAG: &str = "bags/ab/ab23456789abcdef0123456789abcdef";
const LEASE: &str = "sessions/ab23456789abcdef0123456789abcdef.0123456789abcdef";
const CREATE: u32 = flag::WRITE | flag::CREATE | flag::EXCLUSIVE;

struct Site {
    dir: TempDir,
    server: Server,
}

fn path(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl Site {
    fn with(rights: Rights, by_hand: bool) -> Self {
        let dir = TempDir::new().unwrap();
        for made in ["out", "in/bags/ab", "in/sessions", "in/condemned"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        fs::write(dir.path().join("out/secret"), "secret").unwrap();
        let server = Self::server(&dir, rights, by_hand);
        Self { dir, server }
    }

    fn new(rights: Rights) -> Self {
        Self::with(rights, false)
    }

    fn server(dir: &TempDir, rights: Rights, by_hand: bool) -> Server {
        let tree = Tree::open(&dir.path().join("in")).unwrap();
        if by_hand {
            tree.walk_by_hand();
        }
        let mut server = Server::new(tree, rights);
        assert!(matches!(server.answer(Asked::Hello { version: 3 }), Ok(Reply::Hello(_))));
        server
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("in").join(name)
    }

    fn ask(&mut self, asked: Asked) -> Reply {
        self.server.answer(asked).unwrap()
    }

    fn code(&mut self, asked: Asked) -> Code {
        code(self.ask(asked))
    }

    fn open(&mut self, name: &str, flags: u32) -> Reply {
        self.ask(Asked::Open { path: path(name), flags, attrs: Attrs::default() })
    }

    fn write(&mut self, handle: &Bytes, data: &'static [u8]) -> Code {
        self.code(Asked::Write { handle: handle.clone(), offset: 0, data: Bytes::from_static(data) })
    }
}

fn code(reply: Reply) -> Code {
    match reply {
        Reply::Status(status) => status.code,
        _ => Code::Ok,
    }
}

fn handle(reply: Reply) -> Bytes {
    match reply {
        Reply::Handle(handle) => handle,
        other => panic!("no handle: {other:?}"),
    }
}

#[test]
fn no_symbolic_link_is_followed() {
    for by_hand in [false, true] {
        for rights in [Rights::AppendOnly, Rights::ReadOnly, Rights::Full] {
            let mut site = Site::with(rights, by_hand);
            symlink("../out", site.at("link")).unwrap();
            symlink("bags", site.at("inner")).unwrap();
            symlink("../out/secret", site.at("bags/ab/file")).unwrap();
            fs::write(site.at("bags/ab/plain"), "plain").unwrap();
            assert_eq!(code(site.open("bags/ab/plain", flag::READ)), Code::Ok, "{by_hand}");
            assert_ne!(code(site.open("inner/ab/plain", flag::READ)), Code::Ok);
            for name in ["link/secret", "bags/ab/file", "link", "../out/secret", "/link/../link/secret"] {
                assert_ne!(code(site.open(name, flag::READ)), Code::Ok, "{name}");
                assert_ne!(site.code(Asked::OpenDir { path: path(name) }), Code::Ok, "{name}");
                assert_ne!(site.code(Asked::Stat { path: path(name) }), Code::Ok, "{name}");
                assert_ne!(site.code(Asked::ReadLink { path: path(name) }), Code::Ok, "{name}");
            }
            assert_ne!(site.code(Asked::Lstat { path: path("link/secret") }), Code::Ok);
            assert_eq!(site.code(Asked::Lstat { path: path("link") }), Code::Ok);
            let flags = flag::WRITE | flag::CREATE;
            assert_ne!(code(site.open("link/new", flags)), Code::Ok);
            assert_ne!(site.code(Asked::Remove { path: path("link/secret") }), Code::Ok);
            let attrs = Attrs { permissions: Some(0o777), ..Attrs::default() };
            assert_ne!(site.code(Asked::SetStat { path: path("link"), attrs }), Code::Ok);
            assert_eq!(fs::read_dir(site.dir.path().join("out")).unwrap().count(), 1);
        }
    }
}

#[test]
fn what_is_published_is_closed_even_to_those_who_have_it_open() {
    let mut site = Site::new(Rights::AppendOnly);
    let part = format!("{BAG}.part");
    let own = handle(site.open(&part, CREATE));
    assert_eq!(site.write(&own, b"contents"), Code::Ok);
    // Another channel is another process.
    let mut other = Site::server(&site.dir, Rights::AppendOnly, false);
    let open = Asked::Open { path: path(&part), flags: flag::WRITE, attrs: Attrs::default() };
    let others = handle(other.answer(open).unwrap());
    let rename = Asked::Rename { from: path(&part), to: path(BAG) };
    assert_eq!(code(other.answer(rename).unwrap()), Code::Ok);

    assert_eq!(site.write(&own, b"changed!"), Code::PermissionDenied);
    let late = Asked::Write { handle: others, offset: 100, data: Bytes::from_static(b"longer") };
    assert_eq!(code(other.answer(late).unwrap()), Code::PermissionDenied);
    let attrs = Attrs { size: Some(0), ..Attrs::default() };
    assert_eq!(site.code(Asked::FsetStat { handle: own, attrs }), Code::PermissionDenied);
    assert_eq!(code(site.open(BAG, flag::WRITE)), Code::PermissionDenied);
    assert_eq!(site.code(Asked::Remove { path: path(BAG) }), Code::PermissionDenied);
    assert_eq!(fs::read(site.at(BAG)).unwrap(), b"contents");
    assert_eq!(fs::metadata(site.at(BAG)).unwrap().mode() & 0o222, 0, "nobody may write");

    // The name is taken, and what comes next does not take its place.
    let next = handle(site.open(&part, CREATE));
    assert_eq!(site.write(&next, b"next"), Code::Ok);
    assert_eq!(site.code(Asked::Rename { from: path(&part), to: path(BAG) }), Code::Failure);
    // It is closed by that, too, and can only be given up, or get another name.
    assert_eq!(site.write(&next, b"goes on"), Code::PermissionDenied);
    assert_eq!(site.code(Asked::Remove { path: path(&part) }), Code::Ok);
    assert_eq!(fs::read(site.at(BAG)).unwrap(), b"contents");
}

#[test]
fn what_is_unfinished_is_not_shown() {
    let mut site = Site::new(Rights::AppendOnly);
    fs::write(site.at(LEASE), "").unwrap();
    fs::write(site.at(&format!("{BAG}.part")), "").unwrap();
    fs::write(site.at(BAG), "").unwrap();
    let names = |server: &mut Server, dir: &str| {
        let handle = handle(server.answer(Asked::OpenDir { path: path(dir) }).unwrap());
        let mut names = Vec::new();
        while let Reply::Names(more) = server.answer(Asked::ReadDir { handle: handle.clone() }).unwrap() {
            names.extend(more.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()));
        }
        names.retain(|name| !name.starts_with('.'));
        names.len()
    };
    assert_eq!(["sessions", "bags/ab"].map(|dir| names(&mut site.server, dir)), [0, 1]);
    // And that there is something is no secret.
    let open = handle(site.ask(Asked::OpenDir { path: path("sessions") }));
    site.ask(Asked::ReadDir { handle: open.clone() });
    assert_eq!(site.code(Asked::ReadDir { handle: open }), Code::PermissionDenied);
    let mut full = Site::server(&site.dir, Rights::Full, false);
    assert_eq!(["sessions", "bags/ab"].map(|dir| names(&mut full, dir)), [1, 2]);
    // Its writer, who knows the name, may end it from another connection.
    assert_eq!(site.code(Asked::Remove { path: path(LEASE) }), Code::Ok);
}

#[test]
fn what_makes_a_collector_remove_bags_cannot_be_published() {
    let mut site = Site::new(Rights::AppendOnly);
    handle(site.open(LEASE, CREATE));
    for name in ["condemned/ab23456789abcdef0123456789abcdef", "moved/x", "config.part", ".ssh/config", "x"] {
        let rename = Asked::Rename { from: path(LEASE), to: path(name) };
        assert_eq!(site.code(rename), Code::PermissionDenied, "{name}");
        assert_eq!(code(site.open(name, CREATE)), Code::PermissionDenied, "{name}");
    }
}

#[test]
fn keys_come_with_the_repository_or_from_another_key() {
    let mut site = Site::new(Rights::AppendOnly);
    fs::create_dir(site.at("keys")).unwrap();
    let publish = |site: &mut Site, id: &str| {
        let (part, to) = (path(&format!("keys/{id}.part")), path(&format!("keys/{id}")));
        handle(site.open(&format!("keys/{id}.part"), CREATE));
        site.code(Asked::Rename { from: part, to })
    };
    assert_eq!(publish(&mut site, "0123456789abcde0"), Code::Ok);
    fs::write(site.at("config"), "").unwrap();
    assert_eq!(publish(&mut site, "0123456789abcde1"), Code::PermissionDenied);
    let mut full = Site::server(&site.dir, Rights::Full, false);
    let [from, to] = ["keys/0123456789abcde1.part", "keys/0123456789abcde1"].map(path);
    assert_eq!(code(full.answer(Asked::Rename { from, to }).unwrap()), Code::Ok);
}

#[test]
fn a_directory_that_cannot_be_renamed_is_no_matter_of_permission() {
    let mut site = Site::new(Rights::Full);
    let rename = Asked::Rename { from: path("bags"), to: path("bags/ab/x") };
    assert_eq!(site.code(rename), Code::BadMessage);
}

#[test]
fn handles_are_numbered_as_openssh_numbers_them() {
    let mut site = Site::new(Rights::ReadOnly);
    fs::write(site.at(BAG), "").unwrap();
    let number = |reply| u32::from_be_bytes(handle(reply)[..].try_into().unwrap());
    let open = |site: &mut Site| number(site.open(BAG, flag::READ));
    assert_eq!([(); 3].map(|()| open(&mut site)), [0, 1, 2]);
    for number in [0_u32, 2] {
        let handle = Bytes::copy_from_slice(&number.to_be_bytes());
        assert_eq!(site.code(Asked::Close { handle: handle.clone() }), Code::Ok);
        assert_eq!(site.code(Asked::Close { handle }), Code::Failure);
    }
    assert_eq!(code(site.open("missing", flag::READ)), Code::NoSuchFile);
    assert_eq!([(); 3].map(|()| open(&mut site)), [2, 0, 3]);
    let given = (4..2000).take_while(|_| code(site.open(BAG, flag::READ)) == Code::Ok).count();
    assert_eq!(given + 4, handles::MOST);
}

#[test]
fn modes_are_clamped_and_owners_stay() {
    let mut site = Site::new(Rights::Full);
    let attrs = Attrs { permissions: Some(0o7777), ..Attrs::default() };
    let made = site.ask(Asked::Open { path: path("file"), flags: flag::WRITE | flag::CREATE, attrs });
    site.ask(Asked::MakeDir { path: path("dir"), attrs });
    site.ask(Asked::FsetStat { handle: handle(made), attrs });
    site.ask(Asked::SetStat { path: path("dir"), attrs });
    for name in ["file", "dir"] {
        let mode = fs::metadata(site.at(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o777, "{name}");
    }
}

#[test]
fn with_all_rights_files_are_changed_renamed_over_and_removed() {
    let mut site = Site::new(Rights::Full);
    fs::write(site.at("a"), "contents").unwrap();
    fs::write(site.at("b"), "others").unwrap();
    assert_eq!(site.code(Asked::Rename { from: path("a"), to: path("b") }), Code::Failure);
    assert_eq!(site.code(Asked::PosixRename { from: path("a"), to: path("b") }), Code::Ok);
    let open = handle(site.open("b", flag::READ | flag::WRITE));
    assert_eq!(site.write(&open, b"CON"), Code::Ok);
    let read = Asked::Read { handle: open.clone(), offset: 0, len: 100 };
    assert_eq!(site.ask(read), Reply::Data(Bytes::from_static(b"CONtents")));
    handle(site.open("b", flag::WRITE | flag::TRUNCATE));
    let read = Asked::Read { handle: open, offset: 0, len: 100 };
    assert_eq!(site.code(read), Code::Eof);
    assert_eq!(site.code(Asked::Remove { path: path("/b") }), Code::Ok);
    assert_eq!(site.code(Asked::RemoveDir { path: path("sessions") }), Code::Ok);
    assert_eq!(site.code(Asked::RemoveDir { path: path("bags") }), Code::Failure);
}

#[test]
fn what_a_client_may_do_is_said_in_the_greeting() {
    for (rights, notice) in [
        (Rights::AppendOnly, "append-only@kitbag"),
        (Rights::ReadOnly, "read-only@kitbag"),
        (Rights::Full, ""),
    ] {
        let tree = Tree::open(Path::new("/")).unwrap();
        let mut server = Server::new(tree, rights);
        assert!(server.answer(Asked::Limits).is_err(), "before the greeting");
        let mut server = Server::new(Tree::open(Path::new("/")).unwrap(), rights);
        let Ok(Reply::Hello(Hello { version: 3, extensions })) = server.answer(Asked::Hello { version: 3 })
        else {
            panic!("no greeting")
        };
        let notices: Vec<_> = extensions.keys().filter(|name| name.ends_with("@kitbag")).collect();
        assert_eq!(notices, [notice].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>());
        assert!(server.answer(Asked::Hello { version: 3 }).is_err(), "twice");
    }
}

#[test]
fn a_broken_stream_ends_the_session() {
    let dir = TempDir::new().unwrap();
    let hello = [0, 0, 0, 5, 1, 0, 0, 0, 3];
    let run = |more: &[u8]| {
        let mut output = Vec::new();
        let input = [&hello[..], more].concat();
        let outcome = serve(dir.path(), Rights::ReadOnly, &input[..], &mut output);
        assert!(output.len() > 9, "the greeting is answered whatever follows");
        outcome
    };
    assert!(run(&[]).is_ok());
    assert!(matches!(run(&[0, 0]), Err(ServeError::Cut)));
    assert!(matches!(run(&[0, 0, 0, 5, 3, 0]), Err(ServeError::Cut)));
    for bad in [&[0, 0, 0, 0][..], &[0xff; 9], &[0, 0, 0, 5, 3, 0, 0, 0, 1], &[0, 0, 0, 1, 9]] {
        assert!(matches!(run(bad), Err(ServeError::Malformed(_))), "{bad:?}");
    }
    let missing = serve(&dir.path().join("missing"), Rights::Full, &[][..], Vec::new());
    assert!(matches!(missing, Err(ServeError::Root { .. })));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever is asked, each request has one answer, or the session ends.
    #[test]
    fn any_requests_are_answered_without_panic(
        requests in proptest::collection::vec((3u8..=20, odd_bytes()), 1..40),
        rights in proptest::sample::select(vec![Rights::AppendOnly, Rights::ReadOnly, Rights::Full]),
    ) {
        let dir = TempDir::new().unwrap();
        let mut input = vec![0, 0, 0, 5, 1, 0, 0, 0, 3];
        for (kind, body) in &requests {
            let packet = [&[*kind, 0, 0, 0, 7][..], body].concat();
            input.extend(u32::try_from(packet.len()).unwrap().to_be_bytes());
            input.extend(packet);
        }
        let mut output = Vec::new();
        let outcome = serve(dir.path(), rights, &input[..], &mut output);
        let mut packets = Packets::default();
        packets.push(&output);
        let answers = std::iter::from_fn(|| packets.next_packet().unwrap()).count();
        proptest::prop_assert!(packets.is_empty());
        match outcome {
            Ok(()) => proptest::prop_assert_eq!(answers, requests.len() + 1),
            Err(error) => proptest::prop_assert!(matches!(error, ServeError::Malformed(_)), "{error}"),
        }
    }
}

/// Fields as requests have them, mostly: short strings, small handles, flags; and some that are none.
fn odd_bytes() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let string = |bytes: Vec<u8>| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat();
    let path = proptest::sample::select(vec!["", "/", "a", "a/b", "../x", "sessions", BAG, LEASE]);
    let field = prop_oneof![
        4 => path.prop_map(move |path| string(path.as_bytes().to_vec())),
        3 => (0u32..4).prop_map(move |number| string(number.to_be_bytes().to_vec())),
        2 => (0u32..64).prop_map(|flags| flags.to_be_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ];
    (proptest::collection::vec(field, 1..4), any::<bool>())
        .prop_map(|(fields, padded)| [fields.concat(), vec![0; if padded { 40 } else { 0 }]].concat())
}
