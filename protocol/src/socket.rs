//! The control socket: abstract names, credentials, packets with a descriptor.
//!
//! Decides which peers may talk to a manager: processes of the same user, and root. The name is
//! abstract, so it vanishes with the manager and needs no folder. Its random part keeps two managers
//! from colliding. It is not a secret: the kernel reports the peer's credentials.
//!
//! What may fail: `bind` when names run out; `accept` when descriptors run out. Every other failure
//! affects one connection only.

use std::cell::RefCell;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::layout::{self, RawHint, RawMessageHeader};
use crate::message::{Message, ProtocolError};

/// Most connections that wait to be accepted. Further programs are refused and run without foretell. The kernel lowers it to
/// `net.core.somaxconn`.
const BACKLOG: libc::c_int = 4096;

/// Most descriptors that are received with a message. One is legal; if there are more, all are closed.
const MAX_DESCRIPTORS: usize = 4;

/// A manager's end of the control socket. Non-blocking, so it must be no other process's: one that accepts too, or has it block,
/// could make the manager wait.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: String,
}

impl Listener {
    /// Opens a socket under a fresh name.
    ///
    /// # Errors
    /// The error of `getrandom`, `socket`, `bind` or `listen`.
    pub fn bind() -> io::Result<Self> {
        let mut random = [0_u8; 8];
        // SAFETY: `random` is valid for writing its length.
        let filled = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        if filled != random.len() as isize {
            return Err(io::Error::last_os_error());
        }
        let address = format!(
            "{prefix}{uid}/{pid}-{random:016x}",
            prefix = layout::SOCKET_PREFIX,
            uid = effective_uid(),
            pid = std::process::id(),
            random = u64::from_ne_bytes(random),
        );
        let socket = seqpacket_socket()?;
        let (raw, length) = abstract_address(&address)?;
        // SAFETY: `raw` is an initialised address of which `length` bytes count.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length) })?;
        // SAFETY: no memory is passed.
        check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
        Ok(Self { socket, address })
    }

    /// The value for a program's `FORETELL_SOCKET`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next waiting connection of this user or root; `None` if none waits. Waiting connections of
    /// other users are closed.
    ///
    /// # Errors
    /// The error of `accept`, for example too many open files.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        loop {
            // SAFETY: null addresses are allowed: the peer's name is not wanted.
            let fd = unsafe {
                libc::accept4(
                    self.socket.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                )
            };
            if fd < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR | libc::ECONNABORTED) => continue,
                    _ => return Err(error),
                }
            }
            // SAFETY: accept4 returned a new descriptor that nobody else owns.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            let Ok(peer) = peer_credentials(socket.as_fd()) else { continue };
            if is_trusted(peer.uid) {
                return Ok(Some(Connection { socket, peer_pid: peer.pid }));
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// One peer of a manager. Non-blocking.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer_pid: i32,
}

thread_local! {
    /// Buffer for the packet that is being received, shared by all connections of a thread.
    static PACKET: RefCell<Vec<u8>> = RefCell::new(vec![0; layout::MESSAGE_MAX_BYTES as usize]);
}

impl Connection {
    /// The process that connected, as the kernel reports it in the manager's pid namespace; 0 if it has no number there.
    pub fn peer_pid(&self) -> i32 {
        self.peer_pid
    }

    /// As [`process_of_peer`], of this connection.
    ///
    /// # Errors
    /// The process has ended already, or has no number in this pid namespace.
    pub fn peer_pidfd(&self) -> io::Result<OwnedFd> {
        process_of_peer(self.socket.as_fd())
    }

    /// The stream of the next message, if one has arrived and is a hint. The message stays in the socket.
    pub fn waiting_hint(&self) -> Option<u64> {
        const KIND: usize = offset_of!(RawMessageHeader, kind);
        const STREAM: usize = offset_of!(RawHint, stream);
        let mut head = [0_u8; STREAM + size_of::<u64>()];
        // SAFETY: `head` is valid for writing its length.
        let received = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                head.as_mut_ptr().cast(),
                head.len(),
                libc::MSG_PEEK | libc::MSG_DONTWAIT,
            )
        };
        let kind = u32::from_ne_bytes(head[KIND..KIND + size_of::<u32>()].try_into().ok()?);
        let is_hint = received == head.len() as isize && kind == layout::MESSAGE_HINT;
        let stream = head[STREAM..].try_into().map(u64::from_ne_bytes).ok();
        stream.filter(|_| is_hint)
    }

    /// The next message; `None` if none has arrived.
    ///
    /// # Errors
    /// [`ProtocolError`]; the connection should then be dropped.
    pub fn receive(&mut self) -> Result<Option<Message>, ProtocolError> {
        PACKET.with_borrow_mut(|buffer| self.receive_into(buffer))
    }

    fn receive_into(&mut self, buffer: &mut [u8]) -> Result<Option<Message>, ProtocolError> {
        let mut control = ControlBuffer([0; 16]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all-zero is a valid `msghdr`, a plain C structure.
        let mut packet: libc::msghdr = unsafe { std::mem::zeroed() };
        packet.msg_iov = &raw mut part;
        packet.msg_iovlen = 1;
        packet.msg_control = control.0.as_mut_ptr().cast();
        packet.msg_controllen = size_of::<ControlBuffer>() as _;
        let received = loop {
            // SAFETY: `packet` points to a buffer and a control buffer that are valid for writing
            // their lengths and outlive the call.
            let received = unsafe {
                libc::recvmsg(
                    self.socket.as_raw_fd(),
                    &raw mut packet,
                    libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT,
                )
            };
            if received >= 0 {
                break received as usize;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Ok(None),
                Some(libc::ECONNRESET) => return Ok(Some(Message::End)),
                _ => return Err(error.into()),
            }
        };
        let mut descriptors = take_descriptors(&packet);
        if packet.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(ProtocolError::Length {
                actual_bytes: received,
                expected_bytes: layout::MESSAGE_MAX_BYTES as usize,
            });
        }
        let ring = if descriptors.len() == 1 { descriptors.pop() } else { None };
        Message::decode(&buffer[..received], ring).map(Some)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Aligned as `cmsghdr` must be; holds a header and [`MAX_DESCRIPTORS`] descriptors.
#[repr(C)]
struct ControlBuffer([u64; 16]);

const _: () = assert!(
    size_of::<ControlBuffer>() >= size_of::<libc::cmsghdr>() + MAX_DESCRIPTORS * size_of::<RawFd>()
);

/// Takes ownership of every descriptor that came with a packet, so that none leaks.
fn take_descriptors(packet: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: `packet` was filled by recvmsg and its control buffer is alive.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(packet) };
    while !header.is_null() {
        // SAFETY: a non-null header lies inside the control buffer.
        let (level, kind, length) =
            unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len as usize) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: pure arithmetic on a constant.
            let payload = length.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
            for index in 0..payload / size_of::<RawFd>() {
                // SAFETY: the kernel wrote `payload` bytes of descriptors behind the header, each
                // new in this process and owned by nobody else.
                descriptors.push(unsafe {
                    let fd = libc::CMSG_DATA(header).cast::<RawFd>().add(index).read_unaligned();
                    OwnedFd::from_raw_fd(fd)
                });
            }
        }
        // SAFETY: `header` lies inside the control buffer of `packet`.
        header = unsafe { libc::CMSG_NXTHDR(packet, header) };
    }
    descriptors
}

/// A close-on-exec, non-blocking socket.
pub(crate) fn seqpacket_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: socket returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The abstract address of a name, and its length.
pub(crate) fn abstract_address(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all-zero is a valid `sockaddr_un`, a plain C structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The leading NUL makes the name abstract.
    let room = address.sun_path.len() - 1;
    if name.is_empty() || name.len() > room || name.as_bytes().contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, &from) in address.sun_path[1..].iter_mut().zip(name.as_bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, length as libc::socklen_t))
}

/// The peer's credentials at the time of its connect or listen.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` and `length` are valid for writing, `length` says how much.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    })?;
    Ok(peer)
}

/// The process and the user at the other end of a Unix socket, at the time of its connect or listen. The process is 0 if it
/// has no number in this namespace.
///
/// # Errors
/// It is no Unix socket.
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<(i32, u32)> {
    peer_credentials(socket).map(|peer| (peer.pid, peer.uid))
}

/// A descriptor of the process at the other end of a Unix socket, as of its connect or listen. It is readable once that has
/// ended.
///
/// From Linux 6.5 on it is that process, also if its number was given to another one since. Before, it is the process that
/// has the number now.
///
/// # Errors
/// The process has ended already, or has no number in this pid namespace.
pub fn process_of_peer(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// From `asm-generic/socket.h`; not in the libc crate of every version.
    const SO_PEERPIDFD: libc::c_int = 77;
    let fd = match option_of(socket, SO_PEERPIDFD) {
        Ok(fd) => fd,
        // With any other error, the number may be another process's by now.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            let pid = peer_credentials(socket)?.pid;
            // SAFETY: no memory is passed.
            let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0 as libc::c_uint) };
            check(opened as libc::c_int)?
        }
        Err(error) => return Err(error),
    };
    // SAFETY: either call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A number among the options of a socket.
fn option_of(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` and `length` are valid for writing, `length` says how much.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// Whether this user is the own one, or root.
pub(crate) fn is_trusted(uid: libc::uid_t) -> bool {
    uid == 0 || uid == effective_uid()
}

/// This process's user.
pub(crate) fn effective_uid() -> libc::uid_t {
    // SAFETY: geteuid cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// The result of a call that returns −1 on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
