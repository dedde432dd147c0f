//! libssh2 as an engine that turns bytes of channels into bytes of a connection, and does no I/O of its own.
//!
//! libssh2 is given functions that move bytes to and from two buffers; the socket belongs to [`Engine`], which moves
//! bytes between it and the buffers when told to. The sending function takes whatever it is given, so the state that
//! libssh2 handles badly, a packet half sent, cannot arise. All `unsafe` of the transports is in this file.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::ssh2::{ErrorCode, Session};
use libssh2_sys as raw;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::buffer::Buffer;
use crate::base::secret::Passphrase;

/// Older ones lack strict key exchange, chacha20 and the repair of a deadlock in key re-exchange.
const OLDEST: [u32; 3] = [1, 11, 2];

/// How much is read from the socket at a time.
const READ: usize = 256 << 10;

/// How long an agent may take to answer: it may be asking a person.
const AGENT_PATIENCE: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

// Of `libssh2.h`; libssh2-sys does not declare them.
const CALLBACK_DISCONNECT: c_int = 2;
const CALLBACK_SEND: c_int = 5;
const CALLBACK_RECV: c_int = 6;

#[expect(unsafe_code, reason = "functions of libssh2 that libssh2-sys does not declare")]
unsafe extern "C" {
    fn libssh2_session_callback_set2(
        session: *mut raw::LIBSSH2_SESSION,
        kind: c_int,
        callback: *const c_void,
    ) -> *const c_void;
    fn libssh2_version(at_least: c_int) -> *const c_char;
}

/// Answers a server's questions at login.
pub(super) trait Answer: Send + Sync {
    /// The answer to one question; none to give up.
    fn answer(&self, instructions: &str, question: &str, echo: bool) -> Option<Passphrase>;
}

/// What an error of libssh2 means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// More bytes are needed; nothing is wrong.
    Again,
    /// The server said no to a login.
    LoginRefused,
    /// The server said no to a channel or a subsystem.
    ChannelRefused,
    /// No common algorithm.
    NoAlgorithm,
    /// The connection ended.
    Ended,
    /// The peer's packets are wrong.
    Protocol,
    /// Anything else, most of it on this side.
    Other,
}

/// Classifies an error of libssh2 by its number.
pub(super) fn fault(error: &ssh2::Error) -> Fault {
    let ErrorCode::Session(code) = error.code() else { return Fault::Other };
    match code {
        raw::LIBSSH2_ERROR_EAGAIN => Fault::Again,
        raw::LIBSSH2_ERROR_AUTHENTICATION_FAILED | raw::LIBSSH2_ERROR_PASSWORD_EXPIRED => Fault::LoginRefused,
        raw::LIBSSH2_ERROR_CHANNEL_FAILURE
        | raw::LIBSSH2_ERROR_CHANNEL_REQUEST_DENIED
        | raw::LIBSSH2_ERROR_REQUEST_DENIED => Fault::ChannelRefused,
        raw::LIBSSH2_ERROR_KEX_FAILURE
        | raw::LIBSSH2_ERROR_METHOD_NONE
        | raw::LIBSSH2_ERROR_ALGO_UNSUPPORTED => Fault::NoAlgorithm,
        raw::LIBSSH2_ERROR_SOCKET_DISCONNECT
        | raw::LIBSSH2_ERROR_SOCKET_RECV
        | raw::LIBSSH2_ERROR_SOCKET_SEND
        | raw::LIBSSH2_ERROR_BANNER_RECV
        | raw::LIBSSH2_ERROR_TIMEOUT
        | raw::LIBSSH2_ERROR_SOCKET_TIMEOUT => Fault::Ended,
        raw::LIBSSH2_ERROR_INVALID_MAC
        | raw::LIBSSH2_ERROR_PROTO
        | raw::LIBSSH2_ERROR_DECRYPT
        | raw::LIBSSH2_ERROR_KEY_EXCHANGE_FAILURE
        | raw::LIBSSH2_ERROR_HOSTKEY_INIT
        | raw::LIBSSH2_ERROR_HOSTKEY_SIGN
        | raw::LIBSSH2_ERROR_OUT_OF_BOUNDARY => Fault::Protocol,
        _ => Fault::Other,
    }
}

/// What libssh2's functions and the driver share. It lives as long as the session, whoever holds that last.
struct Shared {
    socket: OwnedFd,
    wire: Mutex<Wire>,
    answerer: Mutex<Option<Arc<dyn Answer>>>,
}

#[derive(Default)]
struct Wire {
    incoming: Buffer,
    outgoing: Buffer,
    /// Nothing will come any more.
    ended: bool,
    /// What the server said when it hung up.
    farewell: Option<String>,
    /// How many packets libssh2 has sent.
    packets: u64,
    /// How often libssh2 was given bytes that came in.
    swallowed: u64,
}

impl Shared {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the session is given as its socket: keeps [`Shared`] alive until the session is freed.
struct Anchor(Arc<Shared>);

impl AsRawFd for Anchor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.socket.as_raw_fd()
    }
}

/// A session of libssh2 and its connection.
pub(super) struct Engine {
    session: Session,
    shared: Arc<Shared>,
}

impl Engine {
    /// A session over a connected stream socket, which becomes non-blocking.
    ///
    /// # Errors
    /// If libssh2 is too old, or out of memory, or the socket cannot be set.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        check_version()?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let shared = Arc::new(Shared { socket, wire: Mutex::default(), answerer: Mutex::default() });
        let mut session = Session::new()?;
        session.set_tcp_stream(Anchor(Arc::clone(&shared)));
        install(&session, &shared);
        session.set_blocking(false);
        Ok(Self { session, shared })
    }

    /// The session. Every call on it may leave bytes to send.
    pub(super) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The connection, to wait for.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }

    /// How many bytes wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.shared.wire().outgoing.len()
    }

    /// Whether the connection has ended; bytes that came before may still be there.
    pub(super) fn ended(&self) -> bool {
        self.shared.wire().ended
    }

    /// What the server said when it hung up.
    pub(super) fn farewell(&self) -> Option<String> {
        self.shared.wire().farewell.clone()
    }

    /// How many packets were made so far.
    pub(super) fn packets(&self) -> u64 {
        self.shared.wire().packets
    }

    /// Changes whenever libssh2 has taken in bytes: any call on any channel may, for all channels.
    pub(super) fn swallowed(&self) -> u64 {
        self.shared.wire().swallowed
    }

    /// Writes what the socket takes.
    ///
    /// # Errors
    /// If the connection is broken.
    pub(super) fn flush(&mut self) -> Result<(), Errno> {
        let mut wire = self.shared.wire();
        while !wire.outgoing.is_empty() {
            match rustix::net::send(&self.shared.socket, wire.outgoing.front(), SendFlags::NOSIGNAL) {
                Ok(sent) => wire.outgoing.consume(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    wire.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Reads what the socket has, up to 256 KiB; how many bytes that were. The end of the stream is seen by
    /// [`Self::ended`].
    ///
    /// # Errors
    /// If the connection is broken.
    pub(super) fn fill(&mut self) -> Result<usize, Errno> {
        let mut wire = self.shared.wire();
        loop {
            let received =
                rustix::net::recv(&self.shared.socket, wire.incoming.room(READ), RecvFlags::empty());
            match received {
                Ok((0, _)) => {
                    wire.ended = true;
                    return Ok(0);
                }
                Ok((count, _)) => {
                    wire.incoming.add(count);
                    return Ok(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(error) => {
                    wire.ended = true;
                    return Err(error);
                }
            }
        }
    }

    /// One step of a login in which the server asks questions. To be repeated while it says [`Fault::Again`].
    pub(super) fn answer_questions(
        &mut self,
        user: &str,
        answerer: &Arc<dyn Answer>,
    ) -> Result<(), ssh2::Error> {
        *self.shared.answerer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(answerer));
        let length = c_uint::try_from(user.len()).unwrap_or(0);
        #[expect(unsafe_code, reason = "ssh2's own function takes away the pointer that the callbacks need")]
        let code = unsafe {
            // SAFETY: the session is alive, the name outlives the call, and the callback has libssh2's signature.
            let session: *mut raw::LIBSSH2_SESSION = &mut *self.session.raw();
            raw::libssh2_userauth_keyboard_interactive_ex(
                session,
                user.as_ptr().cast(),
                length,
                Some(answer_callback),
            )
        };
        if code == 0 { Ok(()) } else { Err(ssh2::Error::from_errno(ErrorCode::Session(code))) }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Says goodbye if the socket takes it at once. With the stream marked as ended, libssh2 frees its channels
        // instead of waiting for the peer to close them.
        if !self.ended() {
            let _ = self.session.disconnect(None, "done", None);
            let _ = self.flush();
        }
        let mut wire = self.shared.wire();
        wire.ended = true;
        wire.incoming = Buffer::default();
    }
}

/// Lets the kernel hold back no more unsent bytes than keep the line busy, so that urgent ones find a short queue.
pub(super) fn set_unsent_limit(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<c_int>()).map_err(io::Error::other)?;
    #[expect(unsafe_code, reason = "an option that no safe interface here offers")]
    let code = unsafe {
        // SAFETY: the option takes an int, which outlives the call.
        let value = (&raw const bytes).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, size)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Refuses a libssh2 that is too old, such as a system's that was linked instead of the one of libssh2-sys.
fn check_version() -> io::Result<()> {
    #[expect(unsafe_code, reason = "libssh2-sys does not declare it")]
    let version = unsafe {
        // SAFETY: for 0 it returns a static string.
        CStr::from_ptr(libssh2_version(0))
    };
    let version = version.to_string_lossy();
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0_u32));
    let found: [u32; 3] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("libssh2 {version} is too old: 1.11.2 is needed")))
}

#[expect(unsafe_code, reason = "libssh2 takes its functions, and what they are to work on, as pointers")]
fn install(session: &Session, shared: &Arc<Shared>) {
    let mut guard = session.raw();
    let session: *mut raw::LIBSSH2_SESSION = &mut *guard;
    // SAFETY: the session is alive and locked. `shared` is freed after it, by the anchor in it. The functions have
    // the signatures that libssh2 expects for these kinds.
    unsafe {
        *raw::libssh2_session_abstract(session) = Arc::as_ptr(shared).cast_mut().cast();
        libssh2_session_callback_set2(session, CALLBACK_SEND, send_callback as *const c_void);
        libssh2_session_callback_set2(session, CALLBACK_RECV, recv_callback as *const c_void);
        libssh2_session_callback_set2(session, CALLBACK_DISCONNECT, disconnect_callback as *const c_void);
    }
}

/// What [`install`] has left for the callbacks.
#[expect(unsafe_code, reason = "the pointer comes back from libssh2")]
unsafe fn shared<'a>(context: *mut *mut c_void) -> &'a Shared {
    // SAFETY: the caller is a callback of a session that `install` has set up, and such a session owns its `Shared`.
    unsafe { &*(*context).cast::<Shared>() }
}

fn negative(error: Errno) -> isize {
    isize::try_from(error.raw_os_error()).unwrap_or(1).saturating_neg()
}

fn count(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

#[expect(unsafe_code, reason = "called by libssh2")]
extern "C" fn send_callback(
    socket: c_int,
    bytes: *const c_void,
    length: usize,
    _flags: c_int,
    context: *mut *mut c_void,
) -> isize {
    // SAFETY: `context` is ours, and libssh2 lends `length` bytes.
    let (shared, bytes) =
        unsafe { (shared(context), std::slice::from_raw_parts(bytes.cast::<u8>(), length)) };
    if socket != shared.socket.as_raw_fd() {
        return agent(socket, PollFlags::OUT, |agent| rustix::net::send(agent, bytes, SendFlags::NOSIGNAL));
    }
    let mut wire = shared.wire();
    wire.outgoing.push(bytes);
    // It sends each packet in one piece.
    wire.packets = wire.packets.wrapping_add(1);
    count(length)
}

#[expect(unsafe_code, reason = "called by libssh2")]
extern "C" fn recv_callback(
    socket: c_int,
    bytes: *mut c_void,
    length: usize,
    _flags: c_int,
    context: *mut *mut c_void,
) -> isize {
    // SAFETY: `context` is ours, and libssh2 lends `length` bytes of a buffer that it has written to before.
    let (shared, bytes) =
        unsafe { (shared(context), std::slice::from_raw_parts_mut(bytes.cast::<u8>(), length)) };
    if socket != shared.socket.as_raw_fd() {
        return agent(socket, PollFlags::IN, |agent| {
            rustix::net::recv(agent, bytes, RecvFlags::empty()).map(|(received, _)| received)
        });
    }
    let mut wire = shared.wire();
    match wire.incoming.take(bytes) {
        0 if wire.ended => 0,
        0 => negative(Errno::AGAIN),
        taken => {
            wire.swallowed = wire.swallowed.wrapping_add(1);
            count(taken)
        }
    }
}

/// The agent's connection is libssh2's own, but its bytes come through the same functions.
fn agent(
    socket: c_int,
    ready: PollFlags,
    transfer: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
) -> isize {
    #[expect(unsafe_code, reason = "libssh2 names its agent's socket by number")]
    let agent = unsafe {
        // SAFETY: libssh2 keeps the socket open during the call.
        BorrowedFd::borrow_raw(socket)
    };
    match poll(&mut [PollFd::new(&agent, ready)], Some(&AGENT_PATIENCE)) {
        Ok(0) => negative(Errno::TIMEDOUT),
        // The end of the stream must not look like nothing yet.
        Ok(_) => match transfer(agent) {
            Ok(0) => negative(Errno::CONNRESET),
            Ok(bytes) => count(bytes),
            Err(error) => negative(error),
        },
        Err(error) => negative(error),
    }
}

#[expect(unsafe_code, reason = "called by libssh2")]
extern "C" fn disconnect_callback(
    _session: *mut raw::LIBSSH2_SESSION,
    _reason: c_int,
    message: *const c_char,
    message_length: c_int,
    _language: *const c_char,
    _language_length: c_int,
    context: *mut *mut c_void,
) {
    // SAFETY: `context` is ours, and the message is lent for the call.
    let (shared, message) = unsafe { (shared(context), lent(message.cast(), message_length)) };
    let text = String::from_utf8_lossy(message).chars().filter(|c| !c.is_control()).take(500).collect();
    shared.wire().farewell = Some(text);
}

/// Bytes that libssh2 lends; none for a null pointer or a negative length.
#[expect(unsafe_code, reason = "libssh2 passes pointers and lengths")]
unsafe fn lent<'a>(bytes: *const u8, length: c_int) -> &'a [u8] {
    match usize::try_from(length) {
        // SAFETY: the caller got both from libssh2, and they belong together.
        Ok(length) if !bytes.is_null() => unsafe { std::slice::from_raw_parts(bytes, length) },
        _ => &[],
    }
}

#[expect(unsafe_code, reason = "called by libssh2")]
extern "C" fn answer_callback(
    _name: *const c_char,
    _name_length: c_int,
    instruction: *const c_char,
    instruction_length: c_int,
    count: c_int,
    prompts: *const raw::LIBSSH2_USERAUTH_KBDINT_PROMPT,
    responses: *mut raw::LIBSSH2_USERAUTH_KBDINT_RESPONSE,
    context: *mut *mut c_void,
) {
    // SAFETY: `context` is ours, and the text is lent for the call.
    let (shared, instructions) = unsafe { (shared(context), lent(instruction.cast(), instruction_length)) };
    let answerer = shared.answerer.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let instructions = String::from_utf8_lossy(instructions);
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: libssh2 passes arrays of `count` questions and of as many answers.
        let (prompt, response) = unsafe { (&*prompts.add(index), &mut *responses.add(index)) };
        let length = c_int::try_from(prompt.length).unwrap_or(0);
        // SAFETY: the text is lent for the call.
        let question = String::from_utf8_lossy(unsafe { lent(prompt.text, length) });
        let answer = answerer
            .as_ref()
            .and_then(|answerer| answerer.answer(&instructions, &question, prompt.echo != 0));
        let answer = answer.as_ref().map_or(&[][..], Passphrase::expose);
        // SAFETY: libssh2 frees the answer with `free`, as sessions made by ssh2 use the C library's memory.
        let copy = unsafe { libc::malloc(answer.len().max(1)) }.cast::<c_char>();
        if !copy.is_null() {
            // SAFETY: the copy has room for the answer, and is not part of it.
            unsafe { answer.as_ptr().cast::<c_char>().copy_to_nonoverlapping(copy, answer.len()) };
            response.text = copy;
            response.length = c_uint::try_from(answer.len()).unwrap_or(0);
        }
    }
}

/// What [`wait`] has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Time is up.
    Nothing,
    /// The socket has or takes bytes, or its state has changed.
    Socket,
    /// The waker is readable, and perhaps the socket too.
    Waker,
}

/// Waits until the socket is readable, or writable if wanted, or the waker is readable, or time is up.
pub(super) fn wait(
    socket: BorrowedFd<'_>,
    write: bool,
    waker: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> Result<Ready, Errno> {
    let events = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let timeout = Timespec::try_from(timeout).or(Err(Errno::INVAL))?;
    let mut sockets = vec![PollFd::from_borrowed_fd(socket, events)];
    sockets.extend(waker.map(|waker| PollFd::from_borrowed_fd(waker, PollFlags::IN)));
    match poll(&mut sockets, Some(&timeout)) {
        Ok(0) => Ok(Ready::Nothing),
        Ok(_) if sockets.get(1).is_some_and(|waker| !waker.revents().is_empty()) => Ok(Ready::Waker),
        Ok(_) | Err(Errno::INTR) => Ok(Ready::Socket),
        Err(error) => Err(error),
    }
}
