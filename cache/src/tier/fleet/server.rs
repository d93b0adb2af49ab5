//! Connections to a server or to the nodes of a cluster.
//!
//! An *exchange* sends commands about keys and gets their replies. The commands of each node go in one pipeline, and all nodes
//! work at the same time. A node that fails costs the replies to its own commands, and no others.
//!
//! A node that is silent for [`PATIENCE`] fails, and so does one that has not sent all replies when the exchange's time is over.
//! That is looked at between replies: one that comes byte by byte is read to its end. Looking up a host's name takes as long as
//! the system lets it.
//!
//! A server that answers `CLUSTER SLOTS` is a node of a cluster. If it says that a slot has moved, the slots are asked for
//! anew, and the commands are sent once more. Beyond that, the caller asks the origin. Any node that was known says where the
//! slots are, so a cluster outlives the hosts of its address.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, RedisError, RedisResult, ServerError, Value};

use super::address::Address;

/// How long a server may take to accept a connection, and to let us in.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may be silent while we wait for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an exchange may take for which no program waits. With 4 MiB in it, a server is slower than 0.4 MB/s then.
pub(super) const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// How long an exchange may take for which programs wait. With 2 to 4 MiB in it, a server is slower than a store.
pub(super) const DEMAND_MAX: Duration = Duration::from_secs(2);
/// How long to look for a server that says where slots are, if several do not answer. The others come first next time.
const FIND_MAX: Duration = Duration::from_secs(3);
const SLOTS: u16 = 16384;

/// A server, by host and port.
pub(super) type Node = (String, u16);

/// What all threads know of the servers.
#[derive(Default)]
pub(super) struct Known {
    /// Nodes that are left alone.
    pub(super) away: HashSet<Node>,
    /// Grows when a node fails, comes back or leaves. Then the slots are asked for anew, since another node may have them.
    pub(super) version: u64,
}

/// A command about one key.
pub(super) struct Command {
    packed: Vec<u8>,
    slot: u16,
    is_vital: bool,
}

impl Command {
    /// One that a server may refuse, and still be of use.
    pub(super) fn new(key: &str, command: &Cmd) -> Self {
        let packed = command.get_packed_command();
        Command { packed, slot: slot_of(key.as_bytes()), is_vital: false }
    }

    /// One that fails the server if it refuses that for good.
    pub(super) fn vital(key: &str, command: &Cmd) -> Self {
        Command { is_vital: true, ..Self::new(key, command) }
    }
}

/// Why an exchange failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// In words, without secrets.
    pub(super) why: String,
}

impl Failure {
    fn of(error: &RedisError) -> Self {
        let why = match error.detail() {
            Some(detail) if error.code().is_some() => {
                format!("{} {detail}", error.code().unwrap_or_default())
            }
            _ => error.to_string(),
        };
        Failure { why }
    }

    fn of_reply(error: &ServerError) -> Self {
        Failure { why: format!("{} {}", error.code(), error.details().unwrap_or_default()) }
    }
}

struct Link {
    connection: Connection,
    is_new: bool,
}

/// Which node has which slots. All are the server's if it is no cluster, or does not say.
struct Slots {
    nodes: Vec<Node>,
    /// The number of a node for each slot; `u16::MAX` for none.
    of: Vec<u16>,
    is_alone: bool,
}

/// What has come of a probe.
pub(super) struct Probed {
    /// Nodes that answer, and let us in.
    pub(super) answered: Vec<Node>,
    /// Nodes that the cluster does not have any more.
    pub(super) gone: Vec<Node>,
}

/// See the [module](self). Each thread has its own.
pub(super) struct Servers {
    address: Arc<Address>,
    known: Arc<Known>,
    links: HashMap<Node, Link>,
    /// Where commands go, once it is known.
    slots: Option<Slots>,
    /// Servers that may say which node has which slots. They are asked in this order: the last one that has answered, the hosts of
    /// the address, the nodes of its reply. One that fails goes to the end.
    hosts: Vec<Node>,
    failures: Vec<(Node, Failure)>,
    refusal: Option<Failure>,
}

impl Servers {
    pub(super) fn new(address: Arc<Address>) -> Self {
        let hosts = address.hosts.clone();
        Servers {
            address,
            known: Arc::default(),
            links: HashMap::new(),
            slots: None,
            hosts,
            failures: Vec::new(),
            refusal: None,
        }
    }

    /// Takes note of what other threads have found out.
    pub(super) fn update(&mut self, known: Arc<Known>) {
        if known.version != self.known.version {
            self.slots = None;
        }
        self.known = known;
    }

    /// All nodes, if they are known.
    pub(super) fn nodes(&self) -> &[Node] {
        self.slots.as_ref().map_or(&[], |slots| &slots.nodes)
    }

    /// The nodes that have failed since this was called last.
    pub(super) fn take_failures(&mut self) -> Vec<(Node, Failure)> {
        std::mem::take(&mut self.failures)
    }

    /// The first command that we may not use, of those since this was called last.
    pub(super) fn take_refusal(&mut self) -> Option<Failure> {
        self.refusal.take()
    }

    /// Finds out which of these nodes are back, or which of all if there are none of these. Others have failed.
    ///
    /// # Errors
    /// If none of all is back.
    pub(super) fn probe(&mut self, nodes: &[Node]) -> Result<Probed, Failure> {
        self.slots = None;
        self.find()?;
        let all = self.nodes();
        let (asked, gone): (Vec<Node>, Vec<Node>) = match nodes {
            [] => (all.to_vec(), Vec::new()),
            nodes => nodes.iter().cloned().partition(|node| all.contains(node)),
        };
        let ping = redis::cmd("PING").get_packed_command();
        let (mut answered, mut failed) = (Vec::new(), Vec::new());
        for node in asked {
            let failure = match self.ask(&node, &ping) {
                Ok(Value::ServerError(error)) => self.of_node(&node, Failure::of_reply(&error)),
                Ok(_) => {
                    answered.push(node);
                    continue;
                }
                Err(failure) => failure,
            };
            failed.push((node, failure));
        }
        if nodes.is_empty() && answered.is_empty() {
            let none = || Failure { why: "the cluster has no nodes".to_owned() };
            return Err(failed.into_iter().next().map_or_else(none, |(_, failure)| failure));
        }
        self.failures.extend(failed);
        Ok(Probed { answered, gone })
    }

    /// Asks each node the same, but those that are left alone. The reply of one that refuses is an error among the others.
    pub(super) fn ask_all(&mut self, command: &Cmd) -> Result<Vec<Value>, Failure> {
        self.find()?;
        let packed = command.get_packed_command();
        let mut replies = Vec::new();
        for node in self.nodes().to_vec() {
            if self.known.away.contains(&node) {
                continue;
            }
            match self.ask(&node, &packed) {
                Ok(reply) => replies.push(reply),
                Err(failure) => self.failures.push((node, failure)),
            }
        }
        Ok(replies)
    }

    /// Sends commands for which no program waits, and waits for their replies. A reply that does not come is none.
    ///
    /// # Errors
    /// If no server is found.
    pub(super) fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Value>, Failure> {
        let replies = self.exchange_within(commands, EXCHANGE_MAX)?;
        Ok(replies.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Sends commands, and waits for the replies of each node for so long. There is none from a node that fails or is left
    /// alone, and none about a slot that no node has.
    ///
    /// # Errors
    /// If no server is found.
    pub(super) fn exchange_within(
        &mut self,
        commands: &[Command],
        most: Duration,
    ) -> Result<Vec<Option<Value>>, Failure> {
        let mut replies = vec![None; commands.len()];
        self.send(commands, (0..commands.len()).collect(), most, &mut replies)?;
        let has_moved =
            |reply: &Option<Value>| reply.as_ref().is_some_and(|reply| has_code(reply, "MOVED"));
        let moved: Vec<usize> = (0..replies.len()).filter(|&at| has_moved(&replies[at])).collect();
        if !moved.is_empty() {
            self.slots = None;
            self.send(commands, moved, most, &mut replies)?;
            if let Some(Slots { nodes, is_alone: true, .. }) = &self.slots
                && replies.iter().any(has_moved)
            {
                let why = "it is a node of a cluster, and does not say which node has which slots; allow CLUSTER SLOTS";
                self.failures.push((nodes[0].clone(), Failure { why: why.to_owned() }));
            }
        }
        Ok(replies)
    }

    /// Sends the chosen commands.
    fn send(
        &mut self,
        commands: &[Command],
        chosen: Vec<usize>,
        most: Duration,
        replies: &mut [Option<Value>],
    ) -> Result<(), Failure> {
        self.find()?;
        let begun = Instant::now();
        let (mut to_read, mut failed) = (Vec::new(), Vec::new());
        for (node, of_node) in self.divided(commands, chosen) {
            let is_old = self.is_old(&node);
            match self.write(&node, commands, &of_node) {
                Ok(()) => to_read.push((node, of_node, is_old)),
                Err(failure) => failed.push((node, of_node, is_old, failure)),
            }
        }
        for (node, of_node, is_old) in to_read {
            if let Err(failure) = self.read((&node, most), commands, &of_node, replies) {
                failed.push((node, of_node, is_old, failure));
            }
        }
        for (node, of_node, is_old, mut failure) in failed {
            // A connection that was used before may have been closed meanwhile, so its first failure does not count.
            if is_old && begun.elapsed() < PATIENCE / 2 {
                let written = self.write(&node, commands, &of_node);
                match written.and_then(|()| self.read((&node, most), commands, &of_node, replies)) {
                    Ok(()) => continue,
                    Err(again) => failure = again,
                }
            }
            self.failures.push((node, failure));
        }
        Ok(())
    }

    /// The commands for each node that is not left alone.
    fn divided(&self, commands: &[Command], chosen: Vec<usize>) -> Vec<(Node, Vec<usize>)> {
        let slots = self.slots.as_ref().expect("it was found");
        let mut of_nodes = vec![Vec::new(); slots.nodes.len()];
        for at in chosen {
            if let Some(of_node) = of_nodes.get_mut(slots.number_of(commands[at].slot)) {
                of_node.push(at);
            }
        }
        let all = slots.nodes.iter().cloned().zip(of_nodes);
        all.filter(|(node, of_node)| !of_node.is_empty() && !self.known.away.contains(node))
            .collect()
    }

    fn write(
        &mut self,
        node: &Node,
        commands: &[Command],
        of_node: &[usize],
    ) -> Result<(), Failure> {
        let mut packed = Vec::new();
        of_node.iter().for_each(|&at| packed.extend(&commands[at].packed));
        self.at_node(node, |link| link.connection.send_packed_command(&packed))
    }

    fn read(
        &mut self,
        (node, most): (&Node, Duration),
        commands: &[Command],
        of_node: &[usize],
        replies: &mut [Option<Value>],
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        for &at in of_node {
            let reply = self.at_node(node, |link| link.connection.recv_response())?;
            if let Value::ServerError(error) = &reply {
                self.note_error(node, &commands[at], error);
            }
            replies[at] = Some(reply);
            if begun.elapsed() > most {
                self.links.remove(node);
                return Err(self.of_node(node, Failure { why: "it answers too slowly".to_owned() }));
            }
        }
        if let Some(link) = self.links.get_mut(node) {
            link.is_new = false;
        }
        Ok(())
    }

    /// A node has answered a command with an error.
    fn note_error(&mut self, node: &Node, command: &Command, error: &ServerError) {
        let code = error.code();
        if is_passing(code) || code == "WRONGTYPE" {
            return;
        }
        let is_known = self.failures.iter().any(|(failed, _)| failed == node);
        if command.is_vital && !is_known {
            self.failures.push((node.clone(), self.of_node(node, Failure::of_reply(error))));
        } else if !command.is_vital && is_refusal(error) {
            self.refusal.get_or_insert_with(|| Failure::of_reply(error));
        }
    }

    /// Asks one thing of a node. A connection that was used before may have been closed meanwhile.
    fn ask(&mut self, node: &Node, packed: &[u8]) -> Result<Value, Failure> {
        let (is_old, begun) = (self.is_old(node), Instant::now());
        match self.at_node(node, |link| link.ask(packed)) {
            Err(_) if is_old && begun.elapsed() < PATIENCE / 2 => {
                self.at_node(node, |link| link.ask(packed))
            }
            other => other,
        }
    }

    fn is_old(&self, node: &Node) -> bool {
        self.links.get(node).is_some_and(|link| !link.is_new)
    }

    /// Does something with a node. After a failure its connection is closed: replies may be on their way in it.
    fn at_node<T>(
        &mut self,
        node: &Node,
        act: impl FnOnce(&mut Link) -> RedisResult<T>,
    ) -> Result<T, Failure> {
        let done = self.link(node).and_then(act);
        done.map_err(|error| {
            self.links.remove(node);
            self.of_node(node, Failure::of(&error))
        })
    }

    /// A failure, with the node if there are several.
    fn of_node(&self, node: &Node, failure: Failure) -> Failure {
        let (host, port) = node;
        match self.address.hosts.as_slice() {
            [only] if only == node => failure,
            _ => Failure { why: format!("{host}:{port}: {}", failure.why) },
        }
    }

    fn link(&mut self, node: &Node) -> RedisResult<&mut Link> {
        if !self.links.contains_key(node) {
            let client = redis::Client::open(self.address.to(node)?)?;
            let connection = client.get_connection_with_timeout(CONNECT_PATIENCE)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_write_timeout(Some(PATIENCE))?;
            self.links.insert(node.clone(), Link { connection, is_new: true });
        }
        Ok(self.links.get_mut(node).expect("it is there now"))
    }

    /// Finds out where commands go: asks in turn until one answers. Nodes that are left alone come last.
    fn find(&mut self) -> Result<(), Failure> {
        if self.slots.is_some() {
            return Ok(());
        }
        let (begun, mut first) = (Instant::now(), None);
        let away = |host: &Node| self.known.away.contains(host);
        let (away, mut hosts): (Vec<Node>, Vec<Node>) = self.hosts.iter().cloned().partition(away);
        hosts.extend(away);
        let command = redis::cmd("CLUSTER").arg("SLOTS").get_packed_command();
        for host in hosts {
            match self.ask(&host, &command) {
                Ok(reply) => {
                    let slots = Slots::of(&host, &reply);
                    let all = [host].into_iter().chain(self.address.hosts.iter().cloned());
                    let mut seen = HashSet::new();
                    let all = all.chain(slots.nodes.iter().cloned());
                    self.hosts = all.filter(|host| seen.insert(host.clone())).collect();
                    self.links.retain(|node, _| seen.contains(node));
                    self.slots = Some(slots);
                    return Ok(());
                }
                Err(failure) => {
                    first = first.or(Some(failure));
                    // It comes last next time.
                    self.hosts.retain(|other| *other != host);
                    self.hosts.push(host);
                }
            }
            if begun.elapsed() > FIND_MAX {
                break;
            }
        }
        Err(first.unwrap_or_else(|| Failure { why: "there are no hosts".to_owned() }))
    }
}

impl Link {
    /// One request, whose reply may be an error of the server's.
    fn ask(&mut self, packed: &[u8]) -> RedisResult<Value> {
        self.connection.send_packed_command(packed)?;
        let reply = self.connection.recv_response()?;
        self.is_new = false;
        Ok(reply)
    }
}

/// Whether a server has not run a command, and never will: we lack the right, or it has no command of that name.
fn is_refusal(error: &ServerError) -> bool {
    let is_unknown = error.details().is_some_and(|details| details.contains("unknown command"));
    error.code() == "NOPERM" || is_unknown
}

/// Whether an error of a server's is about one key for now, and says nothing about others: it is full, or a slot moves.
fn is_passing(code: &str) -> bool {
    ["OOM", "ASK", "MOVED", "TRYAGAIN"].contains(&code)
}

/// Whether a reply is an error with this code.
pub(super) fn has_code(reply: &Value, code: &str) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == code)
}

impl Slots {
    /// From the reply to `CLUSTER SLOTS`.
    fn of(asked: &Node, reply: &Value) -> Self {
        let all = |number| vec![number; usize::from(SLOTS)];
        let alone = || Slots { nodes: vec![asked.clone()], of: all(0), is_alone: true };
        let Value::Array(ranges) = reply else { return alone() };
        let mut slots = Slots { nodes: Vec::new(), of: all(u16::MAX), is_alone: false };
        for range in ranges {
            let Value::Array(parts) = range else { continue };
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice()
            else {
                continue;
            };
            let [host, Value::Int(port), ..] = primary.as_slice() else { continue };
            // A node that does not know its own address says nothing.
            let host = text_of(host).filter(|host| !host.is_empty() && host != "?");
            let node = (host.unwrap_or_else(|| asked.0.clone()), *port as u16);
            let number = slots.nodes.iter().position(|known| *known == node);
            let number = number.unwrap_or_else(|| {
                slots.nodes.push(node);
                slots.nodes.len() - 1
            });
            for slot in (*first).max(0)..=(*last).min(i64::from(SLOTS) - 1) {
                slots.of[slot as usize] = number as u16;
            }
        }
        // A cluster that is being made has no slots yet: the server itself says what is wrong.
        if slots.nodes.is_empty() { alone() } else { slots }
    }

    /// The number of the node that has a slot; of no node if none has.
    fn number_of(&self, slot: u16) -> usize {
        usize::from(self.of[usize::from(slot)])
    }
}

pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

/// The slot of a key: CRC-16 (XMODEM) of its bytes. Our keys have no braces, which would stand for a part of them.
fn slot_of(key: &[u8]) -> u16 {
    let crc = key.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_keys_are_those_of_the_specification() {
        // Redis cluster specification, appendix A: the sum of "123456789" is 31C3.
        assert_eq!(slot_of(b"123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot_of(b"foo"), 12182);
    }

    #[test]
    fn a_cluster_says_which_node_has_a_slot() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let range = |first, last, host: &str, port| {
            let node = Value::Array(vec![text(host), Value::Int(port), text("id")]);
            Value::Array(vec![Value::Int(first), Value::Int(last), node])
        };
        let asked = ("seed".to_owned(), 1);
        let reply = Value::Array(vec![range(0, 99, "a", 2), range(100, 200, "", 3)]);
        let slots = Slots::of(&asked, &reply);
        let node_of = |slots: &Slots, slot| slots.nodes.get(slots.number_of(slot)).cloned();
        assert_eq!(node_of(&slots, 99), Some(("a".to_owned(), 2)));
        assert_eq!(node_of(&slots, 100), Some(("seed".to_owned(), 3)));
        assert_eq!((node_of(&slots, 201), slots.is_alone), (None, false));
        for alone in [Value::Nil, Value::Array(Vec::new())] {
            let slots = Slots::of(&asked, &alone);
            assert_eq!((node_of(&slots, 16383), slots.is_alone), (Some(asked.clone()), true));
        }
    }
}
