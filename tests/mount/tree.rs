//! Trees to save.

use std::path::Path;
use std::process::Command;

use crate::common::Kitbag;

/// Everything that a file can be, under the worst of names.
const WORST: &str = r#"
umask 022
mkdir -p sub/deeper 'a b/c	d' empty-dir
echo one > file
: > empty
printf '%0300d' 0 > inlined
head -c 5000000 /dev/urandom > large
truncate -s 20M sparse
printf here | dd of=sparse bs=1 seek=7000000 conv=notrunc status=none
truncate -s 3M hole
head -c 1000000 /dev/zero > zeros
ln file hard-link
ln file sub/hard-link
ln -s file symlink
ln -s /nowhere/at/all dangling
ln -s "$(printf 'new\nline')" "$(printf 'odd\377\001 name')"
printf x > "$(printf 'n\303\244me \\ "quoted"\n$(x) *?')"
printf y > "$(printf '\377\376')"
printf z > -rf
printf w > "$(head -c 255 /dev/zero | tr '\0' n)"
mkfifo fifo
ln fifo sub/fifo-too
mkdir -m 1777 sticky
mkdir closed
echo suid > suid
if [ "$(id -u)" = 0 ]; then
    mknod char c 1 3
    mknod block b 7 200
    chown 12345:54321 suid sub
    chown -h 1:2 symlink
    chmod 0 closed
fi
chmod 6755 suid
chmod 600 inlined
setfattr -n user.colour -v green file
setfattr -n user.empty sub
setfattr -n user.large -v "$(head -c 2000 /dev/zero | tr '\0' v)" large
setfacl -m u:1:r-- file
setfacl -d -m g:2:rwx sub
touch -d '1960-01-02 03:04:05.678901234' file
touch -d '2150-01-01 00:00:00.000000001' large
touch -h -d '1999-12-31 23:59:59.999999999' symlink dangling
touch -d '2002-02-02 02:02:02.020202' sub/deeper sub closed fifo .
"#;

/// Makes the worst tree in the directory `live` of the program's.
pub fn worst(kitbag: &Kitbag) {
    shell(&kitbag.path("live"), WORST);
}

/// Runs a script in a directory, which is made.
pub fn shell(dir: &Path, script: &str) {
    std::fs::create_dir_all(dir).expect("made");
    let status = Command::new("bash").args(["-e", "-c", script]).current_dir(dir).status().expect("bash");
    assert!(status.success(), "{script}");
}

/// A home whose repository holds the directory `live` once, which `script` has filled.
pub fn saved(script: &str) -> Kitbag {
    let kitbag = Kitbag::with_repository();
    shell(&kitbag.path("live"), script);
    kitbag.run(["backup", "live"]).code(0);
    kitbag
}
