//! How long the union of many bag lists takes: `cargo run --release --example union -- [GENERATIONS [BAGS [PER MILLE CHANGED]]]`.
//!
//! Bags are made up, as many as a large repository has; from one generation to the next some of them, chosen at random, are replaced by others. Since bag ids are random, that hits nearly all
//! buckets of a list, so this is the worst case for sharing them. Timed is what garbage collection does with the bytes of the buckets, once they are here and opened.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for measuring")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::time::{Duration, Instant};

use kitbag::bag::BagKind;
use kitbag::base::id::{BagId, ObjectId};
use kitbag::entry::{Place, Reference};
use kitbag::generation::baglist::bucket_of;
use kitbag::generation::format::encode_bucket;
use kitbag::generation::{BagListRef, BagUse};
use kitbag::reach::Union;

struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.rotate_left(29) ^ (self.0 >> 7)
    }

    fn uses(&mut self) -> BagUse {
        let [one, other] = [self.roll(), self.roll()];
        let mut bag = BagId([0; 16]);
        bag.0
            .iter_mut()
            .zip(one.to_le_bytes().into_iter().chain(other.to_le_bytes()))
            .for_each(|(to, from)| *to = from);
        BagUse { bag, kind: BagKind::Data, objects: one % 80, bytes: other % (32 << 20) }
    }
}

/// Processor time of this program, which a busy machine changes little.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap());
    let generations = arguments.next().unwrap_or(1000);
    let bags = arguments.next().unwrap_or(150_000);
    let changed = bags * arguments.next().unwrap_or(10) / 1000;
    let mut bits = 0u8;
    while (bags >> bits) > 512 {
        bits += 1;
    }
    let mut dice = Dice(7);
    let mut lists: Vec<Vec<BagUse>> = vec![Vec::new(); 1 << bits];
    for _ in 0..bags {
        let one = dice.uses();
        lists[bucket_of(one.bag, bits)].push(one);
    }
    let mut references = vec![None; lists.len()];
    let mut stale = vec![true; lists.len()];
    let mut time_cpu = Duration::ZERO;
    let (mut union, mut time, mut read, mut number) = (Union::default(), Duration::ZERO, 0usize, 0u64);
    for _ in 0..generations {
        let mut encoded = vec![Vec::new(); lists.len()];
        for (at, list) in lists.iter_mut().enumerate().filter(|(at, _)| stale[*at]) {
            list.sort_by_key(|one| one.bag);
            encoded[at] = encode_bucket(list);
            number += 1;
            let mut id = ObjectId([0; 32]);
            id.0[..8].copy_from_slice(&number.to_le_bytes());
            let place = Place { bag: BagId([9; 16]), offset: 32, stored: 9000, start: 0, len: 6000 };
            references[at] = Some(Reference { id, place });
        }
        let list = BagListRef { bits, buckets: references.iter().map(|one| one.unwrap()).collect() };
        let (begun, begun_cpu) = (Instant::now(), cpu());
        let wanted = union.wanted(&list);
        read += wanted.len();
        let all: Vec<_> = wanted.into_iter().map(|bucket| (bucket, &encoded[bucket.at][..])).collect();
        union.add(&all).unwrap();
        time += begun.elapsed();
        time_cpu += cpu() - begun_cpu;
        stale.fill(false);
        for _ in 0..changed {
            let (gone, new) = (usize::try_from(dice.roll() >> 1).unwrap(), dice.uses());
            let at = gone % lists.len();
            if let Some(last) = lists[at].len().checked_sub(1) {
                let which = (gone / 512) % (last + 1);
                lists[at].swap_remove(which);
            }
            stale[at] = true;
            let at = bucket_of(new.bag, bits);
            lists[at].push(new);
            stale[at] = true;
        }
    }
    println!(
        "{generations} generations of {bags} bags, {changed} changed from one to the next: {read} buckets read, {} entries decoded, {} distinct bags, {:.2} s ({:.2} s of processor time)",
        union.decoded(),
        union.len(),
        time.as_secs_f64(),
        time_cpu.as_secs_f64()
    );
}
