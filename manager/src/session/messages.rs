//! Messages of the control socket: introductions of programs, hints, cancels and ends.
//!
//! A hint without [room](super::room) stays in its socket, with all messages behind it: a program that hints too much blocks
//! only itself.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use foretell_policy::{Extent, Order, ReaderId, Segment, StreamId};
use foretell_protocol::{Hello, Message, STREAM_EXTERNAL};

use super::{SCRIPTS, Session};
use crate::connections::Peer;
use crate::programs::Program;
use crate::source::arguments::{CommandLine, disclosures, may_name_files, reads_no_arguments};
use crate::source::{Certainty, Disclosure};
use crate::sources::Origin;

/// Streams of a connection with hints or blocks left to read.
const STREAMS_MAX: usize = 1024;

/// Words of a command line that are taken as names for a recording: more than `xargs` gives.
const NAMED_MAX: usize = 1 << 17;

/// Messages of a connection that are taken in one turn, so that a program that never stops sending holds up no other one.
const TURN_MESSAGES_MAX: usize = 128;

/// Programs at a time. Each takes a page that is always in use, and the used part of the ring behind it.
pub(super) const PROGRAMS_MAX: usize = 4096;

/// The most that a program can ask for in one request, which is also what it has without asking (`Config::new`).
const REQUEST_BYTES_MAX: u64 = 128 << 10;

impl Session {
    /// The stream of the next message of `peer`, if that is a hint without room. Introductions, cancels and ends are always
    /// read.
    fn held_back(&self, peer: &Peer) -> Option<u64> {
        if self.hears(peer.hinter) && self.hears(SCRIPTS) {
            return None;
        }
        let stream = peer.held.or_else(|| peer.connection.waiting_hint())?;
        let hinter = if stream == STREAM_EXTERNAL { SCRIPTS } else { peer.hinter };
        (!self.hears(hinter)).then_some(stream)
    }

    pub(super) fn take_messages(&mut self) {
        let mut peers = std::mem::take(&mut self.connections.peers);
        self.has_messages = false;
        peers.retain_mut(|peer| {
            for taken in 0.. {
                if taken == TURN_MESSAGES_MAX {
                    self.has_messages = true; // The others' turn, and that of all else.
                    return true;
                }
                if !peer.is_ready {
                    return true;
                }
                peer.held = self.held_back(peer);
                if peer.held.is_some() {
                    return true;
                }
                match peer.connection.receive() {
                    Ok(None) => peer.is_ready = false,
                    Ok(Some(Message::End)) | Err(_) => break,
                    Ok(Some(message)) => {
                        peer.has_spoken = true;
                        self.take_message(peer, message);
                    }
                }
            }
            self.streams -= peer.streams.len();
            for stream in peer.streams.values() {
                self.policy.close(self.now(), *stream);
            }
            false
        });
        self.connections.peers = peers;
    }

    /// A program has introduced itself.
    fn adopt(&mut self, peer: &Peer, hello: Hello) {
        if self.programs.len() >= PROGRAMS_MAX {
            return self.refused(format!("more than {PROGRAMS_MAX} programs at a time"));
        }
        let now = self.now();
        let watched = self.programs.iter().filter(|program| program.is_watched()).count();
        let names_files = hello.begins_program && !reads_no_arguments(&hello.argv0);
        // The parent's number, if the process is in the manager's namespace.
        let parent = (i64::from(hello.pid) == i64::from(peer.connection.peer_pid()))
            .then_some(u64::from(hello.ppid))
            .filter(|&parent| parent != 0);
        let (name, begins_program) = (program_name(&hello), hello.begins_program);
        match Program::adopt(&peer.connection, hello, watched < self.watched_max) {
            Ok(mut program) => {
                // A process is one program at a time. 0 stands for processes without a number in this namespace.
                let known = program.reader() != ReaderId(0);
                let before = self
                    .programs
                    .iter_mut()
                    .filter(|before| known && before.reader() == program.reader());
                let mut is_another = false;
                for before in before {
                    is_another |= before.is_gone();
                    before.note_replaced();
                }
                if is_another {
                    self.process_ended(program.reader());
                }
                self.fault.adopted(&program);
                self.introduced += u64::from(begins_program);
                program.skip_repeated(self.skips_repeated);
                program.want_reads(self.interest);
                self.walking.begin(&mut program, now);
                self.begins_program(&mut program, parent, &name);
                if known {
                    self.observed.observer.watch(program.reader().0);
                }
                let has_words = names_files && self.take_arguments(&program, parent);
                self.programs.push(program);
                if has_words {
                    self.set_interest(true); // Its first reads matter.
                }
            }
            Err(error) => self.refused(error),
        }
    }

    /// A process begins a program. Short programs are over before their first names are seen, so if somebody wants to know
    /// these, the folder of this one is asked for now; if it has ended, that of its parent stands in, or that of the run.
    fn begins_program(&mut self, program: &mut Program, parent: Option<u64>, name: &str) {
        let process = program.reader();
        self.accesses.begins(process, parent, name);
        if !self.accesses.watches(self.now()) {
            return;
        }
        let own = self.files.as_ref().and_then(|files| files.working_folder(process.0).flatten());
        if self.accesses.records()
            && let Some(files) = &mut self.files
            && let Some(line) = files.command_line(process.0).filter(|line| may_name_files(line))
        {
            let words = disclosures(CommandLine::from_bytes(line), own.clone());
            self.accesses.names(words.take(NAMED_MAX).map(|word| word.path));
        }
        let own = own.map(|folder| Arc::from(folder.as_os_str().as_bytes()));
        let of_parent = || {
            let is_parent = |other: &&Program| Some(other.reader().0) == parent;
            self.programs.iter().rev().find(is_parent)?.walker.working_folder()
        };
        program.walker.begins_in(own.or_else(of_parent).or_else(|| self.accesses.folder()));
    }

    fn take_message(&mut self, peer: &mut Peer, message: Message) {
        let now = self.now();
        match message {
            Message::Hello(hello) => self.adopt(peer, hello),
            Message::Hint(hint) => {
                let Some(stream) = self.stream_of(peer, hint.stream) else {
                    self.refused(format!("more than {STREAMS_MAX} streams of one program"));
                    return;
                };
                let convert = |segment: foretell_protocol::Segment| Segment {
                    offset_bytes: segment.offset_bytes,
                    length_bytes: segment.length_bytes,
                };
                let extent = match hint.extent {
                    foretell_protocol::Extent::WholeFile => Extent::WholeFile,
                    foretell_protocol::Extent::Segments(segments) => {
                        Extent::Segments(segments.into_iter().map(convert).collect())
                    }
                    foretell_protocol::Extent::Strided { first, stride_bytes, count } => {
                        Extent::Strided { first: convert(first), stride_bytes, count }
                    }
                };
                let (path, repeats, certainty) = (hint.path, hint.repeat, Certainty::File);
                let order = if hint.any_order { Order::Any } else { Order::Given };
                self.disclose(stream, Disclosure { path, extent, repeats, order, certainty });
            }
            Message::Request { stream, bytes } => {
                // Hints of no stream are several programs'.
                if stream != STREAM_EXTERNAL
                    && let Some(stream) = self.stream_of(peer, stream)
                {
                    self.policy.set_cluster(stream, bytes.min(REQUEST_BYTES_MAX));
                }
            }
            Message::Cancel { stream } => {
                if let Some(&stream) = peer.streams.get(&stream) {
                    self.policy.cancel(now, stream);
                }
            }
            Message::End => {}
        }
    }

    /// The stream that `peer` has given this number.
    fn stream_of(&mut self, peer: &mut Peer, number: u64) -> Option<StreamId> {
        if number == STREAM_EXTERNAL {
            return Some(self.external);
        }
        if let Some(&stream) = peer.streams.get(&number) {
            return Some(stream);
        }
        let now = self.now();
        if peer.streams.len() >= STREAMS_MAX {
            self.streams -= peer.streams.len();
            peer.streams.retain(|_, &mut stream| {
                let is_past = self.policy.is_past(stream);
                if is_past {
                    self.policy.close(now, stream);
                }
                !is_past
            });
            self.streams += peer.streams.len();
        }
        if peer.streams.len() >= STREAMS_MAX {
            return None;
        }
        let stream = self.policy.open_stream(now, peer.hinter, None);
        self.policy.set_source(stream, Origin::Program.id());
        peer.streams.insert(number, stream);
        self.streams += 1;
        Some(stream)
    }
}

/// The file name of the program; that of the process, which may be cut, if there is none.
fn program_name(hello: &Hello) -> String {
    let name = hello.argv0.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { hello.comm.clone() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use foretell_protocol::{Client, Listener};

    use super::*;
    use crate::connections::Connections;
    use crate::session::room::SOCKET_HINTS_MAX;
    use crate::session::tests::session;

    #[test]
    fn a_connection_with_very_many_messages_has_its_turn_like_others() {
        let mut session = session();
        let listener = Listener::bind().expect("a socket");
        let clients = [0; 2].map(|_| Client::connect(listener.address()).expect("it listens"));
        session.connections = Connections::new(listener, 16);
        session.connections.accept(Instant::now());
        for _ in 0..TURN_MESSAGES_MAX + 1 {
            clients[0].cancel(1).expect("the socket's queue takes them");
        }
        clients[1].hint(&hint("/no/such/file")).expect("sent");
        session.take_messages();
        assert!(session.has_messages);
        assert_eq!(session.connections.peers[1].streams.len(), 1, "the other one was heard");
        session.take_messages();
        assert!(!session.has_messages);
    }

    fn hint(path: &str) -> foretell_protocol::Hint {
        let extent = foretell_protocol::Extent::WholeFile;
        foretell_protocol::Hint {
            stream: 1,
            path: path.into(),
            extent,
            repeat: 1,
            any_order: false,
        }
    }

    /// A session with one connection, and its client.
    fn connected() -> (Session, Client) {
        let mut session = session();
        let listener = Listener::bind().expect("a socket");
        let client = Client::connect(listener.address()).expect("it listens");
        session.connections = Connections::new(listener, 16);
        session.connections.accept(Instant::now());
        (session, client)
    }

    #[test]
    fn a_connection_has_so_many_streams_with_hints_at_most() {
        let (mut session, _client) = connected();
        let mut peer = session.connections.peers.remove(0);
        for number in 1..=STREAMS_MAX as u64 {
            let stream = session.stream_of(&mut peer, number).expect("there is room");
            let whole = Disclosure::whole_file("/no/such/file".into(), Certainty::File);
            session.disclose(stream, whole);
        }
        assert!(session.stream_of(&mut peer, u64::MAX).is_none());
        assert!(session.stream_of(&mut peer, 1).is_some(), "those that are there go on");
    }

    #[test]
    fn hints_beyond_the_bound_stay_in_their_socket_and_a_cancel_is_taken() {
        let (mut session, client) = connected();
        let hinter = session.connections.peers[0].hinter;
        // Nothing is looked up meanwhile.
        for _ in 0..SOCKET_HINTS_MAX {
            client.hint(&hint("/no/such/file")).expect("the queue has room");
            session.connections.note_ready([true]);
            session.take_messages();
        }
        (0..10).for_each(|_| client.hint(&hint("/no/more")).expect("the queue has room"));
        session.connections.note_ready([true]);
        session.take_messages();
        assert_eq!(session.policy.waiting_hints_by(hinter), SOCKET_HINTS_MAX);
        assert_eq!(session.connections.peers[0].held, Some(1));
        let other = Client::connect(session.connections.address()).expect("it listens");
        other.cancel(1).expect("sent");
        session.connections.accept(Instant::now());
        session.take_messages();
        assert!(session.connections.peers[1].has_spoken, "it is taken however much waits");
    }
}
