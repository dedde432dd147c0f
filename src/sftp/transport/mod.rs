//! What makes [`Link`](super::link::Link)s: ways to reach an SFTP server.
