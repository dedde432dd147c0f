//! Lines and streams that make no sense.

use std::io::Write as _;
use std::process::Stdio;

use crate::client::{Client, server};
use crate::common::{Kitbag, Outcome};

/// What the server says to these bytes.
fn fed(bytes: &[u8]) -> Outcome {
    let kitbag = Kitbag::new();
    let mut command = server("--append-only", &kitbag.path("home"), None);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may have ended before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Outcome { code: output.status.code(), stdout: String::new(), stderr }
}

#[test]
fn a_malformed_packet_ends_the_session_with_a_sentence() {
    fed(b"").code(0);
    fed(&[0, 0, 0, 5, 1, 0, 0, 0, 3]).code(0);
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0, 0, 0, 0],
        &[0xff; 100],
        &[0, 0, 0, 5, 3, 0, 0, 0, 1],
        &[0, 0, 0, 5, 1, 0, 0, 0, 3, 0, 0, 0, 5, 1, 0, 0, 0, 3],
        &[0, 0, 0, 5, 1, 0, 0, 0, 3, 0, 0, 0, 9, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
    ] {
        fed(bytes).code(1).says(&["malformed"]);
    }
    fed(&[0, 0, 0, 5, 1, 0]).code(1).says(&["middle of a request"]);
}

#[test]
fn lines_that_make_no_sense() {
    let kitbag = Kitbag::new();
    for line in
        ["serve", "serve --root home", "serve --append-only", "serve --append-only --full --root home"]
    {
        kitbag.run(line.split(' ')).code(2);
    }
    kitbag.run("serve --full --root missing".split(' ')).code(1).says(&["cannot serve missing"]);
    kitbag.run("serve --full --root home".split(' ')).code(0);
}

#[test]
fn memory_and_handles_are_bounded() {
    let kitbag = Kitbag::new();
    kitbag.write("home/file", vec![7; 1 << 20]);
    let mut client = Client::start("--read-only", &kitbag.path("home"), None);
    let opened = (0..2000).take_while(|_| client.open(b"file", 1, &[0; 4]).is_some()).count();
    assert_eq!(opened, 512);
    assert_eq!(client.end(), Some(0));
}
