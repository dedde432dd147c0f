//! Bytes over channels, and connections that end.

use std::sync::Arc;
use std::time::Duration;

use kitbag::sftp::link::{ChannelId, ConnectErrorKind, LinkErrorKind};
use kitbag::sftp::transport::choose::Wish;
use kitbag::sftp::transport::connector;
use kitbag::sftp::transport::prompt::Nobody;
use obbench::sshd::{SshdOptions, Subsystem};

use crate::support::{Driven, config, connect, pattern, refusal, server};

/// A server whose SFTP is a program that sends everything back.
fn echo() -> SshdOptions {
    SshdOptions { subsystem: Subsystem::Command("exec cat".into()), ..SshdOptions::default() }
}

/// Sends `length` bytes on each of `channels` channels at once, and compares what comes back.
fn send_back(driven: &mut Driven, channels: u32, length: usize) {
    driven.open(channels);
    assert_eq!(driven.opened.len(), channels as usize, "{:?}", driven.refused);
    let data: Vec<Vec<u8>> = (0..channels).map(|channel| pattern(channel, length)).collect();
    let mut sent = vec![0; channels as usize];
    loop {
        for channel in 0..channels {
            let index = channel as usize;
            let rest = &data[index][sent[index]..];
            sent[index] += driven.link.send(ChannelId(channel), &rest[..rest.len().min(200_000)]);
        }
        driven.step().unwrap();
        if (0..channels)
            .all(|channel| driven.received.get(&ChannelId(channel)).is_some_and(|got| got.len() == length))
        {
            break;
        }
    }
    for channel in 0..channels {
        assert!(driven.received[&ChannelId(channel)] == data[channel as usize], "channel {channel} differs");
    }
}

#[test]
fn both_ways_over_six_channels() {
    let Some(server) = server(echo()) else { return };
    let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(60));
    send_back(&mut driven, 6, 6 << 20);
}

/// The server asks for new keys every 4 MiB, in both directions, amid the data.
#[test]
fn new_keys_amid_the_data() {
    let Some(server) = server(SshdOptions { rekey_limit: Some("4M".into()), ..echo() }) else { return };
    for _ in 0..2 {
        let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(60));
        send_back(&mut driven, 6, 6 << 20);
    }
}

/// A download that only ever receives: hangs if input that one call took in is not looked for on all channels. One
/// green run proves nothing; `KITBAG_TEST_DOWNLOADS=200` is the long form.
#[test]
fn many_downloads() {
    const LENGTH: usize = 2_000_000;
    let command = format!("yes 0123456789abcde | head -c {LENGTH}");
    let options = SshdOptions { subsystem: Subsystem::Command(command), ..SshdOptions::default() };
    let Some(server) = server(options) else { return };
    #[expect(clippy::disallowed_methods, reason = "how often is for who runs the tests to say")]
    let rounds = std::env::var("KITBAG_TEST_DOWNLOADS").map_or(40, |text| text.parse().expect("a number"));
    for round in 0..rounds {
        let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(12));
        driven.open(4);
        while driven.closed.len() < 4 {
            driven.step().unwrap();
        }
        for channel in 0..4 {
            let got = &driven.received[&ChannelId(channel)];
            assert_eq!(got.len(), LENGTH, "round {round} channel {channel}: {:?}", driven.closed);
            assert!(got.chunks_exact(16).all(|line| line == b"0123456789abcde\n"));
        }
    }
}

#[test]
fn more_channels_than_the_server_allows() {
    let Some(server) = server(SshdOptions { max_sessions: Some(2), ..echo() }) else { return };
    let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(30));
    driven.open(4);
    assert_eq!(driven.opened, [ChannelId(0), ChannelId(1)]);
    assert_eq!(driven.refused.len(), 2);
    assert_eq!(driven.link.send(ChannelId(3), b"x"), 0);
    // One given up makes room for another; the ones that stand go on.
    driven.link.close_channel(ChannelId(1));
    for id in 4.. {
        driven.link.open_channel(ChannelId(id));
        let known = driven.opened.len() + driven.refused.len();
        while driven.opened.len() + driven.refused.len() == known {
            driven.step().unwrap();
        }
        if driven.opened.contains(&ChannelId(id)) {
            break;
        }
    }
    assert_eq!(driven.link.send(ChannelId(0), b"still there"), 11);
    while driven.received.get(&ChannelId(0)).is_none_or(|got| got != b"still there") {
        driven.step().unwrap();
    }
    assert!(driven.closed.is_empty());
}

/// Channels given up at every moment of their opening do no harm to the others.
#[test]
fn given_up_while_opening() {
    let Some(server) = server(echo()) else { return };
    let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(30));
    for id in 0..5 {
        driven.link.open_channel(ChannelId(id));
    }
    driven.link.close_channel(ChannelId(3));
    for _ in 0..2 {
        driven.step().unwrap();
    }
    driven.link.close_channel(ChannelId(0));
    driven.link.close_channel(ChannelId(1));
    driven.link.close_channel(ChannelId(2));
    while !driven.opened.contains(&ChannelId(4)) {
        driven.step().unwrap();
    }
    driven.link.send(ChannelId(4), b"hello");
    while !driven.received.contains_key(&ChannelId(4)) {
        driven.step().unwrap();
    }
    assert!(!driven.opened.contains(&ChannelId(3)));
    assert!(driven.refused.is_empty() && driven.closed.is_empty());
}

#[test]
fn end_of_the_server_program() {
    let command = "head -c 5; echo to nobody >&2; exit 3".to_owned();
    let options = SshdOptions { subsystem: Subsystem::Command(command), ..SshdOptions::default() };
    let Some(server) = server(options) else { return };
    let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(30));
    driven.open(1);
    driven.link.send(ChannelId(0), b"12345");
    while driven.closed.is_empty() {
        driven.step().unwrap();
    }
    assert_eq!(driven.closed, [(ChannelId(0), "the SFTP server ended with exit status 3".to_owned())]);
    assert_eq!(driven.received[&ChannelId(0)], b"12345");
}

/// The output may end long before the program does, and how it did is still told; but not waited for without end.
#[test]
fn end_of_the_output_before_that_of_the_program() {
    for (rest, said) in [("sleep 0.3; exit 3", " with exit status 3"), ("sleep 30", "")] {
        let command = format!("head -c 5; exec <&- >&- 2>&-; {rest}");
        let options = SshdOptions { subsystem: Subsystem::Command(command), ..SshdOptions::default() };
        let Some(server) = server(options) else { return };
        let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(15));
        driven.open(1);
        driven.link.send(ChannelId(0), b"12345");
        while driven.closed.is_empty() {
            driven.step().unwrap();
        }
        assert_eq!(driven.closed, [(ChannelId(0), format!("the SFTP server ended{said}"))]);
        assert_eq!(driven.received[&ChannelId(0)], b"12345");
    }
}

#[test]
fn connection_cut() {
    let Some(mut server) = server(echo()) else { return };
    let mut driven = Driven::new(connect(&server, &[]).unwrap(), Duration::from_secs(30));
    driven.open(2);
    driven.link.send(ChannelId(1), &[0; 100_000]);
    server.stop();
    let error = loop {
        if let Err(error) = driven.step() {
            break error;
        }
    };
    assert_eq!(error.kind, LinkErrorKind::Closed, "{error}");
}

/// A probe is answered although the server has nothing to say.
#[test]
fn sign_of_life() {
    let Some(server) = server(echo()) else { return };
    let mut link = connect(&server, &[]).unwrap();
    let (waker, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut events = Vec::new();
    while !events.is_empty() || {
        link.poll(std::os::fd::AsFd::as_fd(&waker), Duration::from_millis(200), &mut events).unwrap();
        !events.is_empty()
    } {
        events.clear();
    }
    assert!(
        obbench::clock::wait_until(Duration::from_secs(10), || {
            link.probe();
            link.poll(std::os::fd::AsFd::as_fd(&waker), Duration::from_secs(1), &mut events).unwrap();
            !events.is_empty()
        }),
        "no answer"
    );
}

#[test]
fn through_a_proxy_command() {
    let Some(server) = server(echo()) else { return };
    let relay = format!("ssh -F {} -W %h:%p {}", server.ssh_config().display(), obbench::sshd::HOST);
    let mut driven =
        Driven::new(connect(&server, &[("ProxyCommand", &relay)]).unwrap(), Duration::from_secs(60));
    send_back(&mut driven, 4, 2 << 20);

    let error = refusal(connect(&server, &[("ProxyCommand", "echo the gate is shut >&2; exit 1")]));
    assert_eq!(error.kind, ConnectErrorKind::Unreachable);
    assert!(error.sentence.contains("the gate is shut"), "{error}");
}

/// Both transports lead to the same server.
#[test]
fn either_transport() {
    let Some(server) = server(echo()) else { return };
    for (wish, name) in [(Wish::Auto, "ssh2"), (Wish::OpenSsh, "openssh")] {
        let (choice, mut connector) =
            connector(wish, config(&server, &[]), Arc::new(Nobody), Duration::from_secs(15));
        assert_eq!(choice.transport.to_string(), name);
        let mut driven = Driven::new(connector.connect().unwrap(), Duration::from_secs(60));
        send_back(&mut driven, 2, 1 << 20);
    }
}

#[test]
fn through_a_jump_host() {
    let Some(server) = server(echo()) else { return };
    // The server under another name, which is not to be jumped to through itself.
    let config = std::fs::read_to_string(server.ssh_config()).unwrap();
    let gate = config.replace("Host kitbag-test 127.0.0.1", "Host gate");
    std::fs::write(server.ssh_config(), format!("{config}{gate}")).unwrap();
    let link = connect(&server, &[("ProxyJump", "gate")]).unwrap();
    let mut driven = Driven::new(link, Duration::from_secs(60));
    send_back(&mut driven, 2, 1 << 20);
}
