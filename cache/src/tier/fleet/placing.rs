//! F. What is exchanged about orders, and what follows for blocks of a server that is nearly full.

use std::collections::HashSet;

use redis::{Value, cmd};

use super::format::FileId;
use super::orders::{Admission, LASTS, News, READERS, READERS_MAX};
use super::server::{Command, Failure, Servers, text_of};
use super::shared::{Batch, Shared, count};

fn place_of(reader: &str) -> String {
    format!("foretell:1:at:{reader}")
}

fn order_of(reader: &str) -> String {
    format!("foretell:1:order:{reader}")
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

    /// Blocks have arrived from the server. Those that nobody will read any more are deleted if it is nearly full.
    pub(super) fn have_arrived(&self, found: &[(FileId, u64)]) {
        let mut orders = self.orders();
        found.iter().for_each(|(file, index)| orders.arrived(file, *index));
        let may_go = found.iter().filter(|(file, index)| orders.may_go(file, *index));
        let keys = may_go.map(|(file, index)| file.key(*index)).collect();
        drop(orders);
        self.delete(keys);
    }

    /// Publishes what is disclosed here, and learns what is elsewhere if the server is nearly full.
    pub(super) fn exchange_orders(&self, servers: &mut Servers) {
        if let Err(Failure { why }) = self.publish(servers).and_then(|()| self.learn(servers)) {
            return self.note_failure(why);
        }
        if self.orders().is_active() {
            self.wakes_for_orders();
        }
    }

    fn publish(&self, servers: &mut Servers) -> Result<(), Failure> {
        let (news, ended) = self.orders().news();
        let lasts_ms = LASTS.as_millis() as u64;
        let mut commands = Vec::new();
        for News { reader, at, chunks } in &news {
            let (place, order) = (place_of(reader), order_of(reader));
            let set = cmd("SET").arg(&place).arg(&at.to_le_bytes()).arg("PX").arg(lasts_ms).take();
            commands.push(Command::new(&place, &set));
            for chunk in chunks {
                commands.push(Command::new(&order, &cmd("RPUSH").arg(&order).arg(chunk).take()));
            }
            let expire = cmd("PEXPIRE").arg(&order).arg(lasts_ms).take();
            commands.push(Command::new(&order, &expire));
            commands.push(Command::new(READERS, &cmd("SADD").arg(READERS).arg(reader).take()));
        }
        for reader in &ended {
            for key in [place_of(reader), order_of(reader)] {
                commands.push(Command::new(&key, &cmd("UNLINK").arg(&key).take()));
            }
            commands.push(Command::new(READERS, &cmd("SREM").arg(READERS).arg(reader).take()));
        }
        if commands.is_empty() {
            return Ok(());
        }
        // A full server may refuse some: then others know less.
        servers.exchange(&commands).map(drop)
    }

    fn learn(&self, servers: &mut Servers) -> Result<(), Failure> {
        let infos = servers.ask_all(cmd("INFO").arg("memory"))?;
        let infos = infos.iter().filter_map(text_of);
        let part = infos.filter_map(|info| filled_part(&info)).reduce(f64::max);
        self.orders().is_filled(part);
        if !self.orders().is_full() {
            return Ok(());
        }
        let asked =
            servers.exchange(&[Command::new(READERS, &cmd("SMEMBERS").arg(READERS).take())])?;
        let Some(Value::Array(members) | Value::Set(members)) = asked.into_iter().next() else {
            return Ok(());
        };
        let readers: Vec<String> = {
            let orders = self.orders();
            let others = members.iter().filter_map(text_of);
            others.filter(|reader| !orders.is_own(reader)).take(READERS_MAX).collect()
        };
        let mut there = HashSet::new();
        for reader in readers {
            let (place, order) = (place_of(&reader), order_of(&reader));
            let known = self.orders().known_chunks(&reader);
            let replies = servers.exchange(&[
                Command::new(&place, &cmd("GET").arg(&place).take()),
                Command::new(&order, &cmd("LRANGE").arg(&order).arg(known).arg(-1).take()),
            ])?;
            let mut replies = replies.into_iter();
            let at = match replies.next() {
                Some(Value::BulkString(at)) => at.first_chunk().copied().map(u64::from_le_bytes),
                _ => None,
            };
            let Some(at) = at else {
                // Its node has ended.
                let gone = cmd("SREM").arg(READERS).arg(&reader).take();
                servers.exchange(&[Command::new(READERS, &gone)])?;
                continue;
            };
            let chunks: Vec<Vec<u8>> = match replies.next() {
                Some(Value::Array(chunks)) => chunks
                    .into_iter()
                    .filter_map(|chunk| match chunk {
                        Value::BulkString(bytes) => Some(bytes),
                        _ => None,
                    })
                    .collect(),
                _ => Vec::new(),
            };
            self.orders().heard(&reader, at, &chunks);
            there.insert(reader);
        }
        self.orders().are_all(&there);
        Ok(())
    }
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
