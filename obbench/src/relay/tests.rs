//! Delay and rates are what was asked for; faults happen where they were planned.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::clock;
use crate::random::Random;

/// Timings are taken one at a time: two tests at once disturb each other.
static QUIET: Mutex<()> = Mutex::new(());

/// A server that sends back what it gets, to any number of clients, for as long as the process lives.
fn echo() -> SocketAddr {
    serve(|mut stream| {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = stream.read(&mut buffer) {
            if count == 0 || stream.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
    })
}

/// A server that reads everything and then says one byte, or sends `length` bytes if asked with a `g`.
fn sink(length: usize) -> SocketAddr {
    serve(move |mut stream| {
        let mut first = [0];
        stream.read_exact(&mut first).expect("a command");
        if first == *b"g" {
            let _ = stream.write_all(&vec![7; length]);
            return;
        }
        let mut buffer = vec![0; 1 << 20];
        let mut left = length;
        while left > 0 {
            let count = stream.read(&mut buffer).expect("data");
            left -= count.min(left);
            if count == 0 {
                return;
            }
        }
        let _ = stream.write_all(b"!");
    })
}

fn serve(talk: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_nodelay(true).expect("a TCP socket");
            let talk = talk.clone();
            thread::spawn(move || talk(stream));
        }
    });
    address
}

fn connect(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(relay.address()).expect("it listens");
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}

fn ping(stream: &mut TcpStream) -> Duration {
    let begin = clock::now();
    stream.write_all(b"x").expect("sent");
    stream.read_exact(&mut [0]).expect("answered");
    begin.elapsed()
}

/// One of several tries is within 5 %, since a loaded machine only ever adds; none is made after that.
fn assert_close(what: &str, asked: f64, tries: impl IntoIterator<Item = f64>) {
    let mut all = Vec::new();
    for one in tries {
        all.push(one);
        if (one / asked - 1.0).abs() < 0.05 {
            return;
        }
    }
    panic!("{what}: not {asked}, but {all:?}");
}

#[test]
fn a_round_trip_takes_what_was_asked() {
    let _quiet = QUIET.lock();
    for milliseconds in [10, 50] {
        let rtt = Duration::from_millis(milliseconds);
        let relay = Relay::start(echo(), Link::delayed(rtt)).expect("it starts");
        let first = (0..8).map(|_| {
            let begin = clock::now();
            ping(&mut connect(&relay));
            begin.elapsed().as_secs_f64()
        });
        // The handshake and one exchange.
        assert_close("first answer", rtt.as_secs_f64() * 2.0, first);
        let mut stream = connect(&relay);
        let pings: Vec<f64> = (0..10).map(|_| ping(&mut stream).as_secs_f64()).collect();
        assert_close("ping", rtt.as_secs_f64(), pings);
        assert!((11..=18).contains(&relay.traffic().turns));
        let Traffic { turns, bytes_up, bytes_down, .. } = relay.traffic();
        assert_eq!((bytes_up, bytes_down), (turns, turns));
    }
}

#[test]
fn a_banner_takes_two_round_trips_from_connecting() {
    let _quiet = QUIET.lock();
    let rtt = Duration::from_millis(40);
    let greeter = serve(|mut stream| stream.write_all(b"SSH-").expect("sent"));
    let relay = Relay::start(greeter, Link::delayed(rtt)).expect("it starts");
    let tries = (0..8).map(|_| {
        let begin = clock::now();
        connect(&relay).read_exact(&mut [0; 4]).expect("greeted");
        begin.elapsed().as_secs_f64()
    });
    assert_close("banner", 0.080, tries);
}

#[test]
fn bytes_take_what_the_rates_say() {
    let _quiet = QUIET.lock();
    let length = 2 << 20;
    let rtt = Duration::from_millis(20);
    let relay =
        Relay::start(sink(length), Link::delayed(rtt).with_mbit_per_second(20, 80)).expect("it starts");
    let seconds = |mbit: f64| f64::from(1u32 << 24) / mbit / 1e6;
    let up = (0..8).map(|_| {
        let mut stream = connect(&relay);
        let begin = clock::now();
        stream.write_all(b"p").expect("sent");
        stream.write_all(&vec![1; length]).expect("sent");
        stream.read_exact(&mut [0]).expect("all there");
        begin.elapsed().as_secs_f64() - 0.04
    });
    assert_close("up", seconds(20.0), up);
    let down = (0..8).map(|_| {
        let mut stream = connect(&relay);
        let begin = clock::now();
        stream.write_all(b"g").expect("sent");
        stream.read_exact(&mut vec![0; length]).expect("all there");
        begin.elapsed().as_secs_f64() - 0.04
    });
    assert_close("down", seconds(80.0), down);
}

#[test]
fn two_connections_share_the_rate_and_nothing_is_altered() {
    let _quiet = QUIET.lock();
    let relay = Relay::start(echo(), Link::default().with_mbit_per_second(40, 1000)).expect("it starts");
    let tries = (0..8).map(|_| {
        let data: [Vec<u8>; 2] = [0, 1].map(|seed| {
            let mut data = vec![0; 1 << 20];
            Random::new(seed).fill(&mut data);
            data
        });
        let begin = clock::now();
        copy_both(&relay, data);
        begin.elapsed().as_secs_f64()
    });
    assert_close("both", f64::from(1u32 << 24) / 40e6, tries);
}

/// Sends each over a connection of its own, at once, and compares what comes back.
fn copy_both(relay: &Relay, data: [Vec<u8>; 2]) {
    let copies = data.map(|sent| {
        let mut stream = connect(relay);
        thread::spawn(move || {
            let mut reader = stream.try_clone().expect("a clone");
            let got = thread::spawn(move || {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).expect("until the end");
                got
            });
            stream.write_all(&sent).expect("sent");
            stream.shutdown(Shutdown::Write).expect("the end is passed on");
            assert!(got.join().expect("read") == sent);
        })
    });
    copies.into_iter().for_each(|copy| copy.join().expect("a copy"));
}

#[test]
fn jitter_keeps_order_and_stays_within_bounds() {
    let _quiet = QUIET.lock();
    let link = Link { jitter_us: 5_000, ..Link::delayed(Duration::from_millis(30)) };
    let relay = Relay::start(echo(), link).expect("it starts");
    let mut stream = connect(&relay);
    ping(&mut stream);
    let times: Vec<Duration> = (0..20).map(|_| ping(&mut stream)).collect();
    assert!(times.iter().all(|time| *time >= Duration::from_millis(20)), "{times:?}");
    assert!(times.iter().min() < Some(&Duration::from_millis(29)), "it does vary: {times:?}");
}

#[test]
fn cuts_after_so_many_bytes() {
    let relay = Relay::start(echo(), Link::default()).expect("it starts");
    relay.fault_after(Direction::Up, 100_000, Fault::Cut);
    let mut stream = connect(&relay);
    let _ = stream.write_all(&vec![0; 300_000]);
    let mut got = Vec::new();
    assert!(stream.read_to_end(&mut got).is_err(), "a reset, not an end");
    assert!(relay.has_struck());
    assert_eq!(relay.traffic().bytes_up, 100_000);
    // The line is good again.
    ping(&mut connect(&relay));
    relay.fault(Fault::Cut);
    relay.refuse(true);
    assert!(connect(&relay).read_exact(&mut [0]).is_err());
}

#[test]
fn falls_silent_and_recovers() {
    let relay = Relay::start(echo(), Link::default()).expect("it starts");
    let mut held = connect(&relay);
    ping(&mut held);
    held.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
    relay.fault(Fault::Stall);
    held.write_all(b"y").expect("the kernel takes it");
    assert!(held.read_exact(&mut [0]).is_err());
    relay.heal();
    let mut late = [0];
    held.read_exact(&mut late).expect("nothing was lost");
    assert_eq!(&late, b"y");

    relay.fault_after(Direction::Up, 3, Fault::Swallow);
    held.write_all(b"abcdef").expect("the kernel takes it");
    let mut got = [0; 3];
    // The three may or may not come back before the silence; the others never do.
    let _ = held.read_exact(&mut got);
    assert!(held.read_exact(&mut [0]).is_err());
    assert!(relay.has_struck());
    relay.heal();
    held.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
    let error = held.read_exact(&mut [0]).expect_err("bytes were lost, so it cannot go on");
    assert!(!matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    ping(&mut connect(&relay));
}

#[test]
fn is_no_bottleneck_itself() {
    let _quiet = QUIET.lock();
    let length = 256 << 20;
    let relay = Relay::start(sink(length), Link::delayed(Duration::from_millis(50))).expect("it starts");
    let begin: Instant = clock::now();
    let mut stream = connect(&relay);
    stream.write_all(b"p").expect("sent");
    let block = vec![1; 1 << 20];
    for _ in 0..256 {
        stream.write_all(&block).expect("sent");
    }
    stream.read_exact(&mut [0]).expect("all there");
    let speed = 256.0 / begin.elapsed().as_secs_f64();
    // Far above what ssh encrypts on such a machine; half a debug build's speed on two loaded cores.
    assert!(speed > 200.0, "{speed} MiB/s");
}

#[test]
fn links_have_names() {
    let cable: Link = "cable".parse().expect("a preset");
    assert_eq!(cable.rtt(), Duration::from_millis(50));
    assert_eq!((cable.up_bits_per_second, cable.down_bits_per_second), (Some(5_000_000), Some(50_000_000)));
    assert_eq!("120ms".parse::<Link>().expect("a delay"), Link::delayed(Duration::from_millis(120)));
    assert!("moon".parse::<Link>().is_err());
}

/// How many bytes an echo gives back until the connection breaks (true) or says nothing for a second (false).
fn until_it_breaks(relay: &Relay) -> (usize, bool) {
    let mut stream = TcpStream::connect(relay.address()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("set");
    let mut buffer = [0; 1000];
    let mut bytes = 0;
    loop {
        if stream.write_all(&[1; 1000]).is_err() {
            return (bytes, true);
        }
        match stream.read_exact(&mut buffer) {
            Ok(()) => bytes += buffer.len(),
            Err(error) => return (bytes, error.kind() != io::ErrorKind::WouldBlock),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_link_may_have_troubles_of_its_own() {
    let link = |trouble| Link { trouble, ..Link::default() };
    let relay =
        Relay::start(echo(), link(Trouble { cut_every_ms: 100, ..Trouble::default() })).expect("a relay");
    for round in 0..3 {
        let (bytes, is_cut) = until_it_breaks(&relay);
        assert!(is_cut, "round {round}: {bytes}");
    }
    let after = Trouble { cut_after_bytes: 50_000, ..Trouble::default() };
    let relay = Relay::start(echo(), link(after)).expect("a relay");
    let (bytes, is_cut) = until_it_breaks(&relay);
    assert!(is_cut && bytes <= 50_000, "{bytes}");
    let silent = Trouble { silent_every_ms: 100, silent_for_ms: 3000, ..Trouble::default() };
    let relay = Relay::start(echo(), link(silent)).expect("a relay");
    let (bytes, is_cut) = until_it_breaks(&relay);
    assert!(!is_cut, "it says nothing, after {bytes}");
    // And is healed, and falls silent again.
    let mut spoke = 0;
    for _ in 0..6 {
        spoke += usize::from(until_it_breaks(&relay).0 > 0);
    }
    assert!(spoke > 0);
}
