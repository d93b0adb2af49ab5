//! F. What is exchanged about orders, and what follows for blocks of a server that is nearly full.

use std::collections::HashSet;
use std::sync::TryLockError;

use redis::{Cmd, Value, cmd};

use super::format::FileId;
use super::orders::{Admission, CHUNK_MAX_BYTES, LASTS, News, Progress, READERS, READERS_MAX};
use super::server::{Command, Failure, Servers, has_code, text_of};
use super::shared::{Batch, Shared, count};

/// Bytes of orders that are read at a time, for all readers; two chunks of each at least, so that all are read in the end.
const READ_BYTES: usize = 8 << 20;
/// Bytes of a reader's name, at most. Ours have about 50.
const NAME_MAX_BYTES: usize = 128;

fn position_key(reader: &str) -> String {
    format!("foretell:1:at:{reader}")
}

fn order_key(reader: &str) -> String {
    format!("foretell:1:order:{reader}")
}

/// Commands to send together, and for each the reader that it is about.
#[derive(Default)]
struct Pipeline {
    commands: Vec<Command>,
    readers: Vec<String>,
}

impl Pipeline {
    fn add(&mut self, reader: &str, key: &str, command: &Cmd) {
        self.commands.push(Command::new(key, command));
        self.readers.push(reader.to_owned());
    }
}

impl Shared {
    /// Leaves out what is not worth its room, and adds what is to go for the rest.
    pub(super) fn admit(&self, batch: &mut Batch) {
        let mut orders = self.orders();
        if !orders.is_full() {
            return;
        }
        let puts = std::mem::take(&mut batch.puts);
        let mut left_out = Vec::new();
        for put in puts {
            match orders.admit(&put.file, put.index) {
                Admission::Put => batch.puts.push(put),
                Admission::For(file, index) => {
                    batch.deleted.push(file.key(index));
                    batch.puts.push(put);
                }
                Admission::No => left_out.push(put.key),
            }
        }
        drop(orders);
        if !left_out.is_empty() {
            count(&self.counts.declined, left_out.len());
            self.release_unkept(left_out.into_iter());
        }
    }

    /// Blocks have arrived from the server. If it is nearly full, those that no reader has before it are deleted.
    pub(super) fn have_arrived(&self, found: &[(FileId, u64)]) {
        let mut orders = self.orders();
        found.iter().for_each(|(file, index)| orders.note_arrival(file, *index));
        let may_go = found.iter().filter(|(file, index)| orders.may_go(file, *index));
        let keys = may_go.map(|(file, index)| file.key(*index)).collect();
        drop(orders);
        self.delete(keys);
    }

    /// Publishes what is disclosed here, and learns what is elsewhere if the server is nearly full.
    pub(super) fn exchange_orders(&self, servers: &mut Servers) {
        let turn = self.orders().turn();
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is still at it: two of them would read the same twice.
            Err(TryLockError::WouldBlock) => return self.wakes_for_orders(),
        };
        if let Err(Failure { why }) = self.try_to_exchange_orders(servers) {
            return self.note_failure(why);
        }
        let is_active = self.orders().is_active();
        match is_active {
            true => self.wakes_for_orders(),
            // What is known now would be out of date soon, and no one asks for more.
            false => self.orders().forget_others(),
        }
    }

    fn try_to_exchange_orders(&self, servers: &mut Servers) -> Result<(), Failure> {
        // This comes first: where memory has no bound, nothing is published.
        let infos = servers.ask_all(cmd("INFO").arg("memory"))?;
        let infos = infos.iter().filter_map(text_of);
        let part = infos.filter_map(|info| filled_part(&info)).reduce(f64::max);
        let (news, ended) = {
            let mut orders = self.orders();
            orders.set_filled(part);
            orders.news()
        };
        self.publish(servers, &news, &ended)?;
        let is_to_know = {
            let orders = self.orders();
            orders.is_full() && orders.is_active()
        };
        if is_to_know { self.learn(servers) } else { Ok(()) }
    }

    /// Takes back what this node has published, before it ends.
    pub(super) fn withdraw_orders(&self, servers: &mut Servers) {
        let ended = self.orders().end();
        if !self.is_away() {
            let _ = self.publish(servers, &[], &ended); // What stays expires.
        }
    }

    fn publish(
        &self,
        servers: &mut Servers,
        news: &[News],
        ended: &[String],
    ) -> Result<(), Failure> {
        let lasts_ms = LASTS.as_millis() as u64;
        let mut sent = Pipeline::default();
        for News { reader, progress, chunks, is_first } in news {
            let (position, order) = (position_key(reader), order_key(reader));
            if *is_first {
                // At once with its time, so that no order stays for ever.
                let set = cmd("SET").arg(&order).arg(chunks).arg("PX").arg(lasts_ms).take();
                sent.add(reader, &order, &set);
            } else if !chunks.is_empty() {
                sent.add(reader, &order, &cmd("APPEND").arg(&order).arg(chunks).take());
            }
            sent.add(reader, &order, &cmd("PEXPIRE").arg(&order).arg(lasts_ms).take());
            let at = progress.encode();
            let set = cmd("SET").arg(&position).arg(&at).arg("PX").arg(lasts_ms).take();
            sent.add(reader, &position, &set);
            sent.add(reader, READERS, &cmd("SADD").arg(READERS).arg(reader).take());
        }
        if !news.is_empty() {
            sent.add("", READERS, &cmd("PEXPIRE").arg(READERS).arg(lasts_ms).take());
        }
        for reader in ended {
            for key in [position_key(reader), order_key(reader)] {
                sent.add("", &key, &cmd("UNLINK").arg(&key).take());
            }
            sent.add("", READERS, &cmd("SREM").arg(READERS).arg(reader).take());
        }
        let replies = exchange(servers, &sent)?;
        // A full server may refuse some, and one that is away does not reply.
        let mut orders = self.orders();
        for (reader, reply) in sent.readers.iter().zip(replies) {
            if matches!(reply, Value::ServerError(_) | Value::Nil) {
                orders.note_refused(reader);
            }
        }
        Ok(())
    }

    /// The readers of other nodes to follow.
    fn readers(&self, servers: &mut Servers) -> Result<Vec<String>, Failure> {
        let mut sent = Pipeline::default();
        sent.add("", READERS, &cmd("SCARD").arg(READERS).take());
        sent.add("", READERS, &cmd("SRANDMEMBER").arg(READERS).arg(READERS_MAX).take());
        let replies = exchange(servers, &sent)?;
        let [Value::Int(readers), Value::Array(members) | Value::Set(members)] = replies.as_slice()
        else {
            return Ok(Vec::new());
        };
        let members = members.iter().filter_map(text_of);
        let members = members.filter(|reader| reader.len() <= NAME_MAX_BYTES).collect();
        Ok(self.orders().follow(members, *readers as usize))
    }

    /// Learns how far the readers of other nodes have come, and what they have disclosed meanwhile.
    fn learn(&self, servers: &mut Servers) -> Result<(), Failure> {
        let readers = self.readers(servers)?;
        let replies = exchange(servers, &self.questions(&readers))?;
        let mut gone = Pipeline::default();
        for reader in self.take_in(readers, replies) {
            gone.add("", READERS, &cmd("SREM").arg(READERS).arg(reader).take());
        }
        exchange(servers, &gone).map(drop)
    }

    /// Two commands for each reader: where it is, and more of its order.
    fn questions(&self, readers: &[String]) -> Pipeline {
        let most = (READ_BYTES / readers.len().max(1)).max(2 * CHUNK_MAX_BYTES) as u64;
        let orders = self.orders();
        let mut sent = Pipeline::default();
        for reader in readers {
            let (position, order) = (position_key(reader), order_key(reader));
            // One byte more than it has, to see whether it is too long.
            let get = cmd("GETRANGE").arg(&position).arg(0).arg(Progress::BYTES).take();
            sent.add(reader, &position, &get);
            let (from, to) = orders.unread(reader).map_or((0, 0), |from| (from, from + most - 1));
            sent.add(reader, &order, &cmd("GETRANGE").arg(&order).arg(from).arg(to).take());
        }
        sent
    }

    /// What has been replied to these questions. Returns the readers that have ended.
    fn take_in(&self, readers: Vec<String>, replies: Vec<Value>) -> Vec<String> {
        let (mut there, mut gone) = (HashSet::new(), Vec::new());
        let mut orders = self.orders();
        for (reader, replies) in readers.into_iter().zip(replies.as_chunks::<2>().0) {
            let [position, order] = replies;
            let progress = match position {
                Value::BulkString(position) => Progress::decode(position),
                // The server that has it does not say.
                _ => Some(Progress::UNKNOWN),
            };
            let Some(progress) = progress else {
                gone.push(reader);
                continue;
            };
            let bytes = match order {
                Value::BulkString(bytes) if orders.unread(&reader).is_some() => bytes.as_slice(),
                _ => &[],
            };
            orders.learn(&reader, progress, bytes);
            if has_code(order, "WRONGTYPE") {
                orders.cut(&reader);
            }
            there.insert(reader);
        }
        orders.keep_only(&there);
        gone
    }
}

fn exchange(servers: &mut Servers, sent: &Pipeline) -> Result<Vec<Value>, Failure> {
    if sent.commands.is_empty() {
        return Ok(Vec::new());
    }
    servers.exchange(&sent.commands)
}

/// The part of its memory that a server has used; `None` if it has no bound, or does not say.
fn filled_part(info: &str) -> Option<f64> {
    let value = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse::<f64>().ok())
    };
    match (value("used_memory"), value("maxmemory")) {
        (Some(used), Some(most)) if most > 0.0 => Some(used / most),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::filled_part;

    #[test]
    fn a_server_says_how_full_it_is() {
        let info = "# Memory\r\nused_memory:50\r\nused_memory_human:1M\r\nmaxmemory:200\r\n";
        assert_eq!(filled_part(info), Some(0.25));
        assert_eq!(filled_part("used_memory:50\r\nmaxmemory:0\r\n"), None);
        assert_eq!(filled_part(""), None);
    }
}
