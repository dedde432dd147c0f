//! An ordinary client through a forced command: everything works as ever, except what the key is not trusted with.

use std::fs;
use std::time::Duration;

use obbench::clock;
use obbench::need;
use obbench::relay::{Direction, Fault, Link, Relay};
use obbench::sshd::{Sshd, SshdOptions};

use crate::common::{Kitbag, Outcome, files_below, json_field, manifest};

const TRANSPORTS: [&str; 2] = ["ssh2", "openssh"];

/// A server whose only key runs `kitbag serve`.
struct Site {
    kitbag: Kitbag,
    server: Sshd,
    relay: Option<Relay>,
    transport: &'static str,
}

impl Site {
    fn new(rights: &str) -> Option<Self> {
        if !need::program("sshd") {
            return None;
        }
        let kitbag = Kitbag::new();
        fs::create_dir(kitbag.path("srv")).unwrap();
        for number in 0..60 {
            kitbag
                .write(&format!("tree/{}/{number}", number % 7), format!("{number}\n").repeat(number * 100));
        }
        kitbag.settle();
        let server = Sshd::start(SshdOptions::default()).expect("a server");
        let site = Self { kitbag, server, relay: None, transport: "auto" };
        site.trust(rights);
        Some(site)
    }

    /// Puts a relay in front.
    fn with_relay(mut self, link: Link) -> Self {
        let relay = Relay::start(self.server.address(), link).expect("a relay");
        self.server.set_client_port(relay.port()).expect("configured");
        self.relay = Some(relay);
        self
    }

    /// From now on, the key may do this.
    fn trust(&self, rights: &str) {
        let public = fs::read_to_string(self.server.identity().with_extension("pub")).unwrap();
        let program = assert_cmd::cargo::cargo_bin!("kitbag").display();
        let root = self.kitbag.path("srv");
        let command = format!("{program} serve {rights} --root {}", root.display());
        fs::write(self.server.authorized_keys(), format!("restrict,command=\"{command}\" {public}")).unwrap();
    }

    fn line(&self, line: &str) -> Vec<String> {
        let config = self.server.ssh_config();
        let url = format!("sftp://{}/backups/laptop", obbench::sshd::HOST);
        let common = ["-r", &url, "--ssh-config", config.to_str().unwrap(), "--transport", self.transport];
        line.split(' ').chain(common).map(str::to_owned).collect()
    }

    fn run(&self, line: &str) -> Outcome {
        self.kitbag.run(self.line(line))
    }

    fn check_restored(&self, generation: &str) {
        let _ = fs::remove_dir_all(self.kitbag.path("back"));
        self.run(&format!("restore -g {generation} --strip-root --to back")).code(0);
        assert_eq!(manifest(&self.kitbag.path("tree")), manifest(&self.kitbag.path("back")));
    }
}

#[test]
fn sshd_append_only_lets_backups_be_made_and_read() {
    let Some(mut site) = Site::new("--append-only") else { return };
    fs::create_dir(site.kitbag.path("srv/backups")).unwrap();
    for transport in TRANSPORTS {
        site.transport = transport;
        let _ = fs::remove_dir_all(site.kitbag.path("srv/backups/laptop"));
        site.kitbag.run(["cache", "clear"]).code(0);
        assert_eq!(site.run("init --encryption none").code(0).stderr, "");
        assert_eq!(site.run("backup tree").code(0).stderr, "");
        site.kitbag.write(&format!("tree/new-{transport}"), "new\n".repeat(100_000));
        site.kitbag.settle();
        assert_eq!(site.run("backup tree --json").code(0).stderr, "");
        site.check_restored("latest");
        let listed = site.run("generations").code(0);
        assert_eq!((listed.stdout.lines().count(), listed.stderr.as_str()), (2, ""));
        assert!(site.run("ls -g latest").code(0).stdout.contains(transport));
        site.run("verify").code(0);
        site.run("fsck --read-data").code(0);
        site.run("tag add latest kept").code(0);
        site.run("clients").code(0);
        assert_eq!(site.run("backup tree --no-cache").code(0).stderr, "");
        site.run("find new-*").code(0);
        // How long it takes to open the repository, no laptop decides.
        let added = site.run(&format!("key add --new-key-file key-{transport}")).code(1);
        added.says(&["append-only for this key", "maintenance key"]);
        // All is published, and nothing else is left.
        let files = files_below(&site.kitbag.path("srv/backups/laptop"));
        assert!(files.iter().all(|path| path.extension().is_none_or(|end| end != "part")), "{files:?}");
        assert_eq!(fs::read_dir(site.kitbag.path("srv/backups/laptop/sessions")).unwrap().count(), 0);
    }
}

#[test]
fn sshd_append_only_refuses_to_forget_in_one_sentence() {
    let Some(site) = Site::new("--append-only") else { return };
    fs::create_dir(site.kitbag.path("srv/backups")).unwrap();
    site.run("init --encryption none").code(0);
    for number in 0..3 {
        site.kitbag.write("tree/new", format!("{number}\n").repeat(200_000));
        site.kitbag.settle();
        site.run("backup tree").code(0);
    }
    let before = files_below(&site.kitbag.path("srv"));
    for line in ["forget --keep 1", "forget latest~1", "remove-client laptop --yes"] {
        let outcome = site.run(line);
        if outcome.code != Some(2) {
            outcome.code(1).says(&["append-only for this key", "maintenance key"]);
        }
    }
    assert_eq!(files_below(&site.kitbag.path("srv")), before);
    // What came before retention was made.
    for line in ["backup tree --forget 1", "-q backup tree --forget 1"] {
        let said = site.run(line).code(3).stderr;
        assert!(said.contains("kitbag: the backup was made, but --forget failed: "), "{said}");
        assert!(said.contains("append-only for this key"), "{said}");
    }
    assert_eq!(site.run("generations").code(0).stdout.lines().count(), 5);

    // The maintenance key.
    site.trust("--full");
    site.run("forget --keep 1").code(0);
    site.trust("--append-only");
    site.run("gc").code(1).says(&["append-only for this key", "maintenance key"]);
    site.trust("--full");
    let bytes = || files_below(&site.kitbag.path("srv")).len();
    let before = bytes();
    site.run("gc").code(0);
    assert!(bytes() < before);
    site.trust("--append-only");
    site.run("fsck --read-data").code(0);
    site.check_restored("latest");
    assert_eq!(site.run("backup tree").code(0).stderr, "");
}

#[test]
fn sshd_read_only_lets_everything_be_read() {
    let Some(site) = Site::new("--full") else { return };
    fs::create_dir(site.kitbag.path("srv/backups")).unwrap();
    site.run("init --encryption none").code(0);
    site.run("backup tree").code(0);
    site.trust("--read-only");
    site.check_restored("latest");
    site.run("generations").code(0);
    site.run("fsck --read-data").code(0);
    let outcome = site.run("backup tree").code(1);
    outcome.says(&["may only read"]);
}

#[test]
fn sshd_append_only_goes_on_after_a_cut_and_after_a_kill() {
    let Some(site) = Site::new("--append-only") else { return };
    fs::create_dir(site.kitbag.path("srv/backups")).unwrap();
    let mut site = site.with_relay(Link::delayed(Duration::from_millis(5)));
    site.run("init --encryption none").code(0);
    let noise = |seed: u64| {
        let mut random = obbench::random::Random::new(seed);
        (0..1 << 20).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect::<Vec<u8>>()
    };
    for (number, transport) in TRANSPORTS.into_iter().enumerate() {
        site.transport = transport;
        site.kitbag.write(&format!("tree/noise-{transport}"), noise(u64::try_from(number).unwrap()));
        site.kitbag.settle();
        let relay = site.relay.as_ref().unwrap();
        relay.fault_after(Direction::Up, 3 << 20, Fault::Cut);
        let outcome = site.run("backup tree --checkpoint 2M").code(0);
        assert!(relay.has_struck(), "{}", outcome.stderr);
        site.check_restored("latest");
    }
    // Killed in the middle: what it leaves is in nobody's way.
    site.kitbag.write("tree/noise-killed", noise(9));
    site.kitbag.settle();
    let mut command = site.kitbag.command();
    let mut child =
        command.args(site.line("backup tree --limit-upload 2M --checkpoint 1M")).spawn().expect("it starts");
    let parts = || {
        files_below(&site.kitbag.path("srv"))
            .iter()
            .any(|path| path.extension().is_some_and(|end| end == "part"))
    };
    assert!(clock::wait_until(Duration::from_secs(30), parts), "no bag was begun");
    child.kill().unwrap();
    child.wait().unwrap();
    site.run("backup tree").code(0);
    site.check_restored("latest");
    site.run("fsck --read-data").code(0);
}

/// A backup costs as many waits through `kitbag serve` as through OpenSSH's server.
#[test]
fn sshd_append_only_costs_no_waits() {
    let waits = |forced: bool, delay: Duration| {
        let site = Site::new("--append-only")?.with_relay(Link::delayed(delay));
        fs::create_dir(site.kitbag.path("srv/backups")).unwrap();
        let public = fs::read_to_string(site.server.identity().with_extension("pub")).unwrap();
        if !forced {
            fs::write(site.server.authorized_keys(), public).unwrap();
        }
        let path = site.kitbag.path("srv/backups/laptop");
        let run = |line: &str| {
            let mut line = site.line(line);
            if !forced {
                let place = line.iter().position(|word| word == "-r").unwrap() + 1;
                line[place] = site.server.url(&path);
            }
            let outcome = site.kitbag.run(line).code(0);
            json_field(&outcome.stdout, "serial_waits").parse::<u64>().unwrap()
        };
        run("backup tree --json --init --encryption none");
        // The fewest of three: a wait more is the chance of a machine with other things to do.
        let fewest = |run: &dyn Fn(usize) -> u64| (0..3).map(run).min().unwrap();
        let unchanged = fewest(&|_| run("backup tree --json"));
        let changed = fewest(&|number| {
            site.kitbag.write(&format!("tree/new-{number}"), "new\n".repeat(100_000 + number));
            site.kitbag.settle();
            run("backup tree --json")
        });
        let without_cache = fewest(&|_| {
            site.kitbag.run(["cache", "clear"]).code(0);
            run("backup tree --json")
        });
        Some([unchanged, changed, without_cache])
    };
    let mut seen = Vec::new();
    // A machine under load, too slow to have the next question ready when the answer comes, waits once more than it must. The longer the line, the
    // less so; but what the server makes the client wait for is waited for on every line.
    for delay in [50, 200, 600].map(Duration::from_millis) {
        let (Some(forced), Some(plain)) = (waits(true, delay), waits(false, delay)) else { return };
        if forced[0] <= 4 && forced.iter().zip(&plain).all(|(forced, plain)| *forced <= plain + 1) {
            return;
        }
        seen.push(format!("serve {forced:?}, sftp-server {plain:?} over {delay:?}"));
    }
    panic!("{}", seen.join("; "));
}
