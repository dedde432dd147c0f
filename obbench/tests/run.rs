//! A spec is run from end to end with programs that are everywhere.

use obbench::result::Record;
use obbench::spec::Spec;
use obbench::{need, run, tool};

const SPEC: &str = "\
name: a test
seed: 3
repeats: 2
nights: 3
clients: 2
workloads:
  - many-files: { files: 120, bytes: 9 }
links: [local, 20ms]
tools: [tar]
steps: [init, first, nights, clients, cat, ls, restore, restore-onto, mount, gc]
";

#[test]
fn each_step_that_a_program_has_becomes_a_record() {
    if !need::program("sshd") {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("spec.yaml");
    std::fs::write(&file, SPEC).expect("written");
    let spec = Spec::read(&file).expect("a spec");
    let tools: Vec<_> = spec.tools.iter().filter_map(|name| tool::find(name, None)).collect();
    assert_eq!(tools.len(), 1);
    let mut records: Vec<Record> = Vec::new();
    run::run(&spec, &tools, scratch.path(), |record| {
        records.push(record);
        Ok(())
    })
    .expect("it runs");
    for record in &records {
        assert_eq!(record.complaint, None, "{} over {}", record.step, record.link);
        assert!(record.measured.wall_s > 0.0 && record.repository.bytes > 0);
        assert_eq!((record.tree.files, record.machine.processors > 0), (120, true));
    }
    // What tar has not (a repository to make, single files, mounting, collecting) is left out.
    let steps: Vec<&str> = records.iter().take(5).map(|record| record.step.as_str()).collect();
    assert_eq!(steps, ["first", "nights", "clients", "ls", "restore"]);
    assert_eq!(records.len(), 6 * 2 * 2);
    let find = |link: &str, step: &str| {
        let fits = |record: &&Record| record.link == link && record.step == step;
        records.iter().find(fits).expect("measured")
    };
    assert_eq!(find("local", "first").link_bytes, None);
    let [up, _] = find("20ms", "first").link_bytes.expect("over a link");
    let [more, _] = find("20ms", "nights").link_bytes.expect("over a link");
    assert!(up > 100_000 && more > 2 * up, "three copies: {up}, {more}");
    // The relay's handshake, that of SSH, and the command: several round trips.
    assert!(find("20ms", "ls").measured.wall_s > 0.1);
    assert_eq!(std::fs::read_dir(scratch.path()).expect("there").count(), 1, "only the spec is left");
}
