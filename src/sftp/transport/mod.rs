//! What makes [`Link`](super::link::Link)s: ways to reach an SFTP server.
//!
//! There are two ways to speak SSH. [`Ssh2Connector`] speaks it in this process with libssh2, whose shortcomings are
//! made up for around it: the host's settings come from [`ssh_config`], the keys that hosts are known by from
//! [`known_hosts`], a person is asked through a [`prompt`]er. [`openssh`] runs the system's `ssh`, for what libssh2 cannot
//! do; [`choose`] tells which, and [`connector`] makes it. [`local`] is an SFTP server program on this machine; it and `ssh` are links over child
//! processes ([`process`]), one for each channel.

mod algorithms;
mod auth;
mod buffer;
mod chacha;
pub mod choose;
mod connect;
mod conversation;
mod dial;
mod key_file;
pub mod known_hosts;
mod libssh2;
pub mod local;
pub mod openssh;
pub mod pattern;
mod private_dir;
pub mod process;
pub mod prompt;
mod proxy;
mod ssh2;
pub mod ssh_config;
mod ssh_link;
mod wire;

pub use self::connect::connector;
pub use self::ssh2::Ssh2Connector;
