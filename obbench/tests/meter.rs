//! The meter agrees with clients whose requests are known, over a real `sshd` and a relay.

#![expect(clippy::expect_used, reason = "a test")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use obbench::meter::Meter;
use obbench::need;
use obbench::relay::{Link, Relay};
use obbench::sshd::{HOST, Sshd, SshdOptions};

const RTT: Duration = Duration::from_millis(60);

struct Set {
    meter: Meter,
    server: Sshd,
    _relay: Relay,
}

fn set_up() -> Option<Set> {
    if !need::program("sshd") || !need::program("sftp-server") {
        return None;
    }
    let meter = Meter::with_program(Path::new(env!("CARGO_BIN_EXE_obbench"))).expect("a meter");
    let options = SshdOptions { subsystem: meter.subsystem(), ..SshdOptions::default() };
    let mut server = Sshd::start(options).expect("a server");
    let relay = Relay::start(server.address(), Link::delayed(RTT)).expect("a relay");
    server.set_client_port(relay.port()).expect("written");
    Some(Set { meter, server, _relay: relay })
}

/// A channel that says what it is told to.
struct Channel {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Channel {
    fn open(server: &Sshd, more: &[&str]) -> Self {
        let mut child = Command::new("ssh")
            .arg("-F")
            .arg(server.ssh_config())
            .args(more)
            .args(["-s", HOST, "sftp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ssh starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    fn send(&mut self, packets: &[Vec<u8>]) {
        self.input.write_all(&packets.concat()).expect("sent");
    }

    fn receive(&mut self, count: usize) {
        for _ in 0..count {
            let mut length = [0; 4];
            self.output.read_exact(&mut length).expect("an answer");
            let mut body = vec![0; u32::from_be_bytes(length).try_into().expect("short")];
            self.output.read_exact(&mut body).expect("its body");
        }
    }

    fn end(mut self) {
        drop(self.input);
        self.child.wait().expect("ours");
    }
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len() + 1).expect("short").to_be_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(body);
    bytes
}

fn init() -> Vec<u8> {
    packet(1, &[0, 0, 0, 3])
}

/// A `stat` of `/`: 14 bytes.
fn stat() -> Vec<u8> {
    packet(17, b"\0\0\0\x01\0\0\0\x01/")
}

#[test]
fn one_channel() {
    let Some(set) = set_up() else { return };
    let mut channel = Channel::open(&set.server, &[]);
    channel.send(&[init()]);
    channel.receive(1);
    // Three flights of ten: three waits, and the opening one.
    for _ in 0..3 {
        channel.send(&vec![stat(); 10]);
        channel.receive(10);
    }
    channel.end();
    let counts = set.meter.take(RTT);
    assert_eq!((counts.requests, counts.answers, counts.channels), (31, 31, 1));
    assert_eq!(counts.serial_waits, 4);
    assert_eq!(counts.most_outstanding, 10);
    assert_eq!(counts.bytes_up, 9 + 30 * 14);
    assert_eq!(counts.by_type.get("stat"), Some(&30));
    assert!(counts.bytes_down > 30 * 20);
    // And the next client begins at nothing.
    assert_eq!(set.meter.take(RTT).requests, 0);
}

#[test]
fn several_channels_are_one_client() {
    let Some(set) = set_up() else { return };
    let socket = set.server.directory().join("master");
    let control = format!("ControlPath={}", socket.display());
    let share = ["-o", control.as_str(), "-o", "ControlMaster=auto"];
    let mut first = Channel::open(&set.server, &share);
    first.send(&[init()]);
    first.receive(1);
    let mut second = Channel::open(&set.server, &share);
    second.send(&[init()]);
    second.receive(1);
    // Both at once: one wait for the two of them.
    for _ in 0..2 {
        first.send(&vec![stat(); 5]);
        second.send(&vec![stat(); 7]);
        first.receive(5);
        second.receive(7);
    }
    second.end();
    first.end();
    let counts = set.meter.take(RTT);
    assert_eq!((counts.requests, counts.channels), (26, 2));
    assert_eq!(counts.most_outstanding, 12);
    assert_eq!(counts.serial_waits, 4, "two greetings one after the other, two flights");
}

#[test]
fn bulk_data_of_a_real_client() {
    let Some(set) = set_up() else { return };
    let source = set.server.directory().join("source");
    let length = 4 << 20;
    std::fs::write(&source, vec![5u8; length]).expect("written");
    let batch = set.server.directory().join("batch");
    std::fs::write(&batch, format!("put {0} {0}.copy\n", source.display())).expect("written");
    let status = Command::new("sftp")
        .arg("-F")
        .arg(set.server.ssh_config())
        .arg("-b")
        .arg(&batch)
        .arg(HOST)
        .stdout(Stdio::null())
        .status()
        .expect("sftp runs");
    assert!(status.success());
    let counts = set.meter.take(RTT);
    let overhead = counts.bytes_up - u64::try_from(length).expect("small");
    assert!(overhead < 20_000, "{counts:?}");
    assert_eq!(counts.requests, counts.answers);
    assert!(counts.by_type["write"] >= 16 && counts.most_outstanding > 8, "{counts:?}");
    assert!(
        std::fs::read(source).expect("there")
            == std::fs::read(set.server.directory().join("source.copy")).expect("copied")
    );
}
