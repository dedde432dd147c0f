//! The transport over libssh2 against a real server: host keys, logins, channels, and how it fails.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should say where")]

mod sshd_channels;
mod sshd_hosts;
mod sshd_login;
mod support;
