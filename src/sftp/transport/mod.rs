//! What makes [`Link`](super::link::Link)s: ways to reach an SFTP server.
//!
//! [`process`] is a link over child processes, one for each channel; [`openssh`] makes one of the system's `ssh`,
//! [`local`] one of an SFTP server program on this machine.

pub mod local;
pub mod openssh;
pub mod process;
