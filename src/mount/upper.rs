//! What is shown above the generations: clients, dates, ids and links.
//!
//! ```text
//! latest                         -> clients/laptop/latest
//! clients/laptop/f593ef642c27d277/home/ada/…
//! clients/laptop/latest          -> f593ef642c27d277
//! clients/laptop/by-date/2026-11-30T22:15:02 -> ../f593ef642c27d277
//! by-id/f593ef642c27d277         -> ../clients/laptop/f593ef642c27d277
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::opened::Opened;
use crate::base::id::ClientId;
use crate::base::time::Timestamp;
use crate::generation::spec::is_ordinary;

/// The number of the top directory.
pub const TOP: u64 = 1;

/// A client that is shown.
#[derive(Clone)]
pub struct Client {
    /// Its id.
    pub id: ClientId,
    /// Its name.
    pub name: String,
    /// Its generations, oldest first.
    pub generations: Vec<Arc<Opened>>,
}

/// Something shown above the generations, or one of these.
pub enum Shown {
    /// A directory.
    Directory(BTreeMap<Vec<u8>, Shown>),
    /// A link to this.
    Link(Vec<u8>),
    /// A generation.
    Generation(Arc<Opened>),
}

/// What is shown of these clients, `own` being the one that the top's `latest` means.
#[must_use]
pub fn shown(clients: &[Client], own: &str, now: Timestamp) -> Shown {
    let (mut top, mut all, mut ids) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for client in clients {
        let name = file_name(&client.name);
        let (mut here, mut dates) = (BTreeMap::new(), BTreeMap::new());
        for opened in &client.generations {
            let id = opened.record.id.to_string();
            let mut date = date_name(opened.record.started);
            if opened.record.partial {
                date.push_str("-checkpoint");
            }
            if dates.contains_key(date.as_bytes()) {
                date = format!("{date}-{id}");
            }
            dates.insert(date.into_bytes(), Shown::Link(format!("../{id}").into_bytes()));
            ids.insert(id.clone().into_bytes(), Shown::Link(format!("../clients/{name}/{id}").into_bytes()));
            here.insert(id.into_bytes(), Shown::Generation(Arc::clone(opened)));
        }
        let latest = client.generations.iter().rfind(|opened| is_ordinary(&opened.record, now));
        if let Some(latest) = latest {
            here.insert(b"latest".to_vec(), Shown::Link(latest.record.id.to_string().into_bytes()));
            if client.name == own {
                top.insert(b"latest".to_vec(), Shown::Link(format!("clients/{name}/latest").into_bytes()));
            }
        }
        here.insert(b"by-date".to_vec(), Shown::Directory(dates));
        all.insert(name.into_bytes(), Shown::Directory(here));
    }
    top.insert(b"clients".to_vec(), Shown::Directory(all));
    top.insert(b"by-id".to_vec(), Shown::Directory(ids));
    Shown::Directory(top)
}

/// A client's name as the name of a file: what no file name may be is written as `%2F`, `%2E`, and `%` as `%25`.
fn file_name(name: &str) -> String {
    match name {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        name => name.replace('%', "%25").replace('/', "%2F"),
    }
}

/// The local time as a name that sorts: `2026-11-30T22:15:02`.
fn date_name(time: Timestamp) -> String {
    match jiff::Timestamp::from_second(time.secs) {
        Ok(stamp) => stamp.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
        Err(_) => format!("@{}", time.secs),
    }
}

/// What stands under a number.
#[derive(Clone)]
pub enum What {
    /// A directory: names and their numbers.
    Directory(Arc<BTreeMap<Vec<u8>, u64>>),
    /// A link.
    Link(Vec<u8>),
    /// A generation's top directory.
    Generation(Arc<Opened>),
}

/// Something with a number.
#[derive(Clone)]
pub struct Item {
    /// The directory that it stands in; the top stands in itself.
    pub parent: u64,
    /// What it is.
    pub what: What,
}

/// What is shown, by number. Numbers stay: what is shown again under the same name is the same inode, unless it is a link that leads elsewhere; what
/// is not shown any more can still be used by whoever stands in it.
pub struct Upper {
    items: HashMap<u64, Item>,
    numbers: HashMap<Vec<u8>, u64>,
    next: u64,
}

impl Upper {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { items: HashMap::new(), numbers: HashMap::new(), next: TOP }
    }

    /// What has this number.
    #[must_use]
    pub fn item(&self, number: u64) -> Option<&Item> {
        self.items.get(&number)
    }

    /// Shows this from now on.
    pub fn show(&mut self, shown: Shown) {
        self.put(b"", TOP, shown);
    }

    fn put(&mut self, path: &[u8], parent: u64, shown: Shown) -> u64 {
        let mut key = path.to_vec();
        if let Shown::Link(target) = &shown {
            key.push(0);
            key.extend_from_slice(target);
        }
        let next = self.next;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.next = next.saturating_add(1);
        }
        let what = match shown {
            Shown::Link(target) => What::Link(target),
            Shown::Generation(opened) => What::Generation(opened),
            Shown::Directory(below) => {
                let numbers = below.into_iter().map(|(name, shown)| {
                    let path = [path, b"/", &name].concat();
                    let number = self.put(&path, number, shown);
                    (name, number)
                });
                What::Directory(Arc::new(numbers.collect()))
            }
        };
        self.items.insert(number, Item { parent, what });
        number
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::generation;
    use super::*;

    fn client(name: &str, generations: &[(u8, i64)]) -> Client {
        let id = ClientId([1; ClientId::LEN]);
        let opened = |(number, secs): &(u8, i64)| Opened::new(id, generation(*number, *secs, Vec::new()));
        Client { id, name: name.to_owned(), generations: generations.iter().map(opened).collect() }
    }

    fn lines(upper: &Upper, number: u64, path: &str, lines: &mut Vec<String>) {
        match &upper.item(number).unwrap().what {
            What::Directory(below) => {
                for (name, number) in &**below {
                    let path = format!("{path}/{}", String::from_utf8_lossy(name));
                    self::lines(upper, *number, &path, lines);
                }
            }
            What::Link(target) => lines.push(format!("{path} -> {}", String::from_utf8_lossy(target))),
            What::Generation(_) => lines.push(format!("{path}/")),
        }
    }

    fn number(upper: &Upper, path: &str) -> u64 {
        path.split('/').fold(TOP, |number, name| match &upper.item(number).unwrap().what {
            What::Directory(below) => below[name.as_bytes()],
            _ => panic!("no directory"),
        })
    }

    const NOW: Timestamp = Timestamp { secs: 1000, nanos: 0 };

    #[test]
    fn by_client_by_date_and_by_id() {
        let clients = [client("a/b", &[(1, 10), (2, 10)]), client("own", &[(3, 20), (4, 5000)])];
        let mut upper = Upper::new();
        upper.show(shown(&clients, "own", NOW));
        let mut found = Vec::new();
        lines(&upper, TOP, "", &mut found);
        let [one, two, three, four] = [1, 2, 3, 4].map(|n: u8| format!("{n:02x}").repeat(8));
        let [ten, twenty, ahead] = [10, 20, 5000].map(|secs| date_name(Timestamp { secs, nanos: 0 }));
        let expected = [
            format!("/by-id/{one} -> ../clients/a%2Fb/{one}"),
            format!("/by-id/{two} -> ../clients/a%2Fb/{two}"),
            format!("/by-id/{three} -> ../clients/own/{three}"),
            format!("/by-id/{four} -> ../clients/own/{four}"),
            format!("/clients/a%2Fb/{one}/"),
            format!("/clients/a%2Fb/{two}/"),
            format!("/clients/a%2Fb/by-date/{ten} -> ../{one}"),
            format!("/clients/a%2Fb/by-date/{ten}-{two} -> ../{two}"),
            format!("/clients/a%2Fb/latest -> {two}"),
            format!("/clients/own/{three}/"),
            format!("/clients/own/{four}/"),
            format!("/clients/own/by-date/{twenty} -> ../{three}"),
            format!("/clients/own/by-date/{ahead} -> ../{four}"),
            // One that is dated ahead is never the latest.
            format!("/clients/own/latest -> {three}"),
            "/latest -> clients/own/latest".to_owned(),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_stay() {
        let mut upper = Upper::new();
        upper.show(shown(&[client("own", &[(1, 10)])], "own", NOW));
        let one = format!("clients/own/{}", "01".repeat(8));
        let before = [number(&upper, "clients"), number(&upper, &one)];
        let latest = number(&upper, "clients/own/latest");
        upper.show(shown(&[client("own", &[(1, 10), (2, 20)])], "own", NOW));
        assert_eq!([number(&upper, "clients"), number(&upper, &one)], before);
        assert_ne!(number(&upper, "clients/own/latest"), latest, "it leads elsewhere");
        upper.show(shown(&[], "own", NOW));
        assert!(matches!(upper.item(before[1]).unwrap().what, What::Generation(_)), "somebody may be in it");
    }
}
