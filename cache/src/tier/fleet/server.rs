//! Connections to a server or to the nodes of a cluster.
//!
//! An *exchange* sends commands about keys and gets their replies in order. The commands of each node go in one pipeline, and
//! all nodes work at the same time. A server that is silent for [`PATIENCE`] fails the exchange, and so does one that has not
//! sent all replies when the exchange's time is over. That is looked at between replies: one that comes byte by byte is read to
//! its end. Looking up a host's name takes as long as the system lets it.
//!
//! A server that answers `CLUSTER SLOTS` is a node of a cluster. If it says that a slot has moved, the slots are asked for
//! anew, and the commands are sent once more. Retries beyond that are the caller's affair, who rather asks the origin.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, RedisError, RedisResult, Value};

use super::address::Address;

/// How long a server may take to accept a connection, and to let us in.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may be silent while we wait for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an exchange may take for which no program waits. With 4 MiB in it, a server is slower than 0.4 MB/s then.
pub(super) const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// How long an exchange may take for which programs wait. With 2 to 4 MiB in it, a server is slower than a store.
pub(super) const DEMAND_MAX: Duration = Duration::from_secs(2);
const SLOTS: u16 = 16384;

/// A server, by host and port.
type Node = (String, u16);

/// A command about one key, or about none.
pub(super) struct Command {
    packed: Vec<u8>,
    slot: u16,
}

impl Command {
    pub(super) fn new(key: &str, command: &Cmd) -> Self {
        Command { packed: command.get_packed_command(), slot: slot_of(key.as_bytes()) }
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

    pub(super) fn of_reply(error: &redis::ServerError) -> Self {
        Failure { why: format!("{} {}", error.code(), error.details().unwrap_or_default()) }
    }
}

struct Link {
    connection: Connection,
    is_new: bool,
}

/// Which node has which slots; none of a server that is no cluster.
struct Slots {
    nodes: Vec<Node>,
    /// The number of a node for each slot; `u16::MAX` for none.
    of: Vec<u16>,
}

/// See the [module](self). Each thread has its own.
pub(super) struct Servers {
    address: Arc<Address>,
    links: HashMap<Node, Link>,
    /// Where commands go, once it is known.
    slots: Option<Slots>,
}

impl Servers {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Servers { address, links: HashMap::new(), slots: None }
    }

    /// Whether all nodes answer, and let us in.
    pub(super) fn ping(&mut self) -> Result<(), Failure> {
        self.find()?;
        let nodes = self.slots.as_ref().map(|slots| slots.nodes.clone()).unwrap_or_default();
        for node in nodes {
            let ping = redis::cmd("PING").get_packed_command();
            let reply = self.at_node(&node, |link| link.connection.req(&ping))?;
            if let Value::ServerError(error) = reply {
                return Err(self.of_node(&node, Failure::of_reply(&error)));
            }
        }
        Ok(())
    }

    /// Asks each node the same. The reply of one that refuses is an error among the others.
    pub(super) fn ask_all(&mut self, command: &Cmd) -> Result<Vec<Value>, Failure> {
        self.find()?;
        let nodes = self.slots.as_ref().map(|slots| slots.nodes.clone()).unwrap_or_default();
        let packed = command.get_packed_command();
        nodes.iter().map(|node| self.at_node(node, |link| link.connection.req(&packed))).collect()
    }

    /// Sends commands for which no program waits, and waits for their replies.
    pub(super) fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Value>, Failure> {
        self.exchange_within(commands, EXCHANGE_MAX)
    }

    /// Sends commands, and waits for their replies for so long.
    pub(super) fn exchange_within(
        &mut self,
        commands: &[Command],
        most: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let until = Instant::now() + most;
        let mut replies = self.exchange_again(commands, until)?;
        let moved: Vec<usize> =
            (0..replies.len()).filter(|&at| has_code(&replies[at], "MOVED")).collect();
        if !moved.is_empty() {
            self.slots = None;
            let again: Vec<&Command> = moved.iter().map(|&at| &commands[at]).collect();
            for (at, reply) in moved.iter().zip(self.send(&again, until)?) {
                replies[*at] = reply;
            }
        }
        Ok(replies)
    }

    /// A connection that was used before may have been closed meanwhile, so the first failure with one does not count.
    fn exchange_again(
        &mut self,
        commands: &[Command],
        until: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let commands: Vec<&Command> = commands.iter().collect();
        let may_be_old = self.links.values().any(|link| !link.is_new);
        let begun = Instant::now();
        match self.send(&commands, until) {
            Err(_) if may_be_old && begun.elapsed() < PATIENCE / 2 => {
                self.links.clear();
                self.send(&commands, until)
            }
            other => other,
        }
    }

    fn send(&mut self, commands: &[&Command], until: Instant) -> Result<Vec<Value>, Failure> {
        self.find()?;
        let slots = self.slots.as_ref().expect("it was found");
        let mut of_nodes: HashMap<Node, Vec<usize>> = HashMap::new();
        for (at, command) in commands.iter().enumerate() {
            let node = slots.node_of(command.slot).ok_or_else(|| Failure {
                why: format!("no node of the cluster has the slot {}", command.slot),
            })?;
            of_nodes.entry(node.clone()).or_default().push(at);
        }
        for (node, of_node) in &of_nodes {
            let mut packed = Vec::new();
            of_node.iter().for_each(|&at| packed.extend(&commands[at].packed));
            self.at_node(node, |link| link.connection.send_packed_command(&packed))?;
        }
        let mut replies = vec![Value::Nil; commands.len()];
        for (node, of_node) in &of_nodes {
            for &at in of_node {
                replies[at] = self.at_node(node, |link| link.connection.recv_response())?;
                if Instant::now() > until {
                    self.links.clear();
                    let why = "it answers too slowly".to_owned();
                    return Err(self.of_node(node, Failure { why }));
                }
            }
        }
        self.links.values_mut().for_each(|link| link.is_new = false);
        Ok(replies)
    }

    /// Does something with a node. After a failure all connections are closed: replies may be on their way in them.
    fn at_node<T>(
        &mut self,
        node: &Node,
        act: impl FnOnce(&mut Link) -> RedisResult<T>,
    ) -> Result<T, Failure> {
        let done = self.link(node).and_then(act);
        done.map_err(|error| {
            self.links.clear();
            self.slots = None;
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

    /// Finds out where commands go: asks the hosts in turn until one answers.
    fn find(&mut self) -> Result<(), Failure> {
        if self.slots.is_some() {
            return Ok(());
        }
        let address = Arc::clone(&self.address);
        let mut first = None;
        for host in &address.hosts {
            match self.at_node(host, |link| {
                link.connection.req(&redis::cmd("CLUSTER").arg("SLOTS").get_packed_command())
            }) {
                Ok(reply) => {
                    self.slots = Some(Slots::of(host, &reply));
                    return Ok(());
                }
                Err(failure) => first = first.or(Some(failure)),
            }
        }
        Err(first.unwrap_or_else(|| Failure { why: "there are no hosts".to_owned() }))
    }
}

/// One request whose reply may be an error of the server's.
trait Asked {
    fn req(&mut self, packed: &[u8]) -> RedisResult<Value>;
}

impl Asked for Connection {
    fn req(&mut self, packed: &[u8]) -> RedisResult<Value> {
        self.send_packed_command(packed)?;
        self.recv_response()
    }
}

/// Whether a reply is an error with this code.
pub(super) fn has_code(reply: &Value, code: &str) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == code)
}

impl Slots {
    /// From the reply to `CLUSTER SLOTS`. All slots are the asked server's if it is no cluster.
    fn of(asked: &Node, reply: &Value) -> Self {
        let alone = || Slots { nodes: vec![asked.clone()], of: vec![0; usize::from(SLOTS)] };
        let Value::Array(ranges) = reply else { return alone() };
        let mut slots = Slots { nodes: Vec::new(), of: vec![u16::MAX; usize::from(SLOTS)] };
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

    fn node_of(&self, slot: u16) -> Option<&Node> {
        self.nodes.get(usize::from(self.of[usize::from(slot)]))
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
        assert_eq!(slots.node_of(99), Some(&("a".to_owned(), 2)));
        assert_eq!(slots.node_of(100), Some(&("seed".to_owned(), 3)));
        assert_eq!(slots.node_of(201), None);
        for alone in [Value::Nil, Value::Array(Vec::new())] {
            assert_eq!(Slots::of(&asked, &alone).node_of(16383), Some(&asked));
        }
    }
}
