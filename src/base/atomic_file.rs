//! Local files that are there whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Replaces `path` by a file with these bytes (mode 0600): after a crash it holds the old contents or the new, never
/// a mixture. Durable only when `sync` is set (file and directory are then fsynced).
///
/// # Errors
/// What the operating system says; the temporary file is removed.
pub fn replace(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    replace_with_mode(path, bytes, sync, 0o600)
}

/// As [`replace`], with these permissions, whatever the umask is.
///
/// # Errors
/// What the operating system says; the temporary file is removed.
pub fn replace_with_mode(path: &Path, bytes: &[u8], sync: bool, mode: u32) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let outcome = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        if mode != 0o600 {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        if sync {
            file.sync_all()?;
        }
        rename_over(&temporary, path)?;
        if sync {
            sync_parent(path)?;
        }
        Ok(())
    })();
    if outcome.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    outcome
}

/// Renames, overwriting what is at `to`.
///
/// # Errors
/// What the operating system says.
#[expect(clippy::disallowed_methods, reason = "the one place that renames over")]
pub fn rename_over(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Makes the entry of `path` in its directory durable.
///
/// # Errors
/// What the operating system says.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{:016x}.tmp", u64::from_ne_bytes(super::random_bytes())));
    path.with_file_name(name)
}
