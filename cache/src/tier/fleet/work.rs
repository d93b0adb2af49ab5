//! What the threads of a shared tier do: exchanges with the server.
//!
//! Asking for a block is two commands in one pipeline, `GETRANGE` and `SET … NX PX`: the value is there, or we get the lease,
//! or another node has it. The range is bounded by what a block can have, whatever the value is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Value, cmd};

use super::FleetTrouble;
use super::block::{Before, Block, Waits, fetch};
use super::format::{Found, HEADER_BYTES, Token, UNKEPT, lease};
use super::server::{Command, DEMAND_MAX, EXCHANGE_MAX, Failure, Servers, has_code};
use super::shared::{Batch, Next, Put, Shared, count};

/// C. A block is asked for again after this part of the time that it has been waited for, within these bounds.
const WAIT_PART: u32 = 4;
const WAIT_MIN: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_millis(50);
/// C. A block is waited for so many leases long before its lease is taken over: the holder lives, but its fetch takes too long.
const WAITS_LEASES: u32 = 3;
/// C. A block waits for so many holders, one after another. After that the store is too slow or fails for all of them.
const HOLDERS_MAX: u32 = 4;
/// D. How often a block is asked for again after a value that was none.
const REFUSALS_MAX: u32 = 2;
/// How often a key may be there without a value before the value counts as empty. A lease may have come and gone in between.
const BLANKS_MAX: u32 = 3;

/// Extends a lease, if it is ours: the key, our value, the time in ms.
const EXTEND: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";
/// Gives a lease back, if it is ours.
const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// F. Says for a while that a block is not kept, if the lease is ours: the key, our value, the new one, the time in ms. A server
/// that has no room even for that forgets the lease.
const RELEASE_UNKEPT: &str = "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end \
     if redis.pcall('SET',KEYS[1],ARGV[2],'PX',ARGV[3]).err then redis.call('DEL',KEYS[1]) end return 1";
/// How long that is said: nodes that wait ask again within 50 ms. After it, the block may be put.
const UNKEPT_LASTS: Duration = Duration::from_secs(1);
/// Takes a lease over from its holder, if that still has it: the key, the holder's value, our value, the time in ms. Of all
/// nodes that wait, one succeeds. The others find another holder, and wait for that one.
const TAKE_OVER: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then redis.call('SET',KEYS[1],ARGV[2],'PX',ARGV[3]) return 1 end return 0";

/// What becomes of a block that was asked for.
enum Outcome {
    Found(Vec<u8>),
    /// B. We have the lease.
    Ours,
    /// C. A node has it: this one, if it is known.
    Others(Option<Token>),
    /// Its key is there, without a value.
    Blank,
    /// D.
    Refused,
    /// F, E. To be fetched without a lease.
    Straight,
}

impl Shared {
    /// The work of a thread.
    pub(super) fn serve(&self) {
        let mut servers = Servers::new(Arc::clone(&self.address));
        while let Some(next) = self.next() {
            servers.update(self.known());
            // A panic drops its requests, which fail as lost, and its puts.
            let done = catch_unwind(AssertUnwindSafe(|| match next {
                Next::Straight(blocks) => fetch(blocks, false),
                Next::Probe(nodes) => match servers.probe(&nodes) {
                    Ok(probed) => self.note_back(probed),
                    Err(Failure { why }) => self.note_failure(why),
                },
                Next::Orders => self.exchange_orders(&mut servers),
                Next::Exchange(batch) => {
                    foretell_fault::point("foretell-fleet");
                    self.exchange(&mut servers, batch);
                }
            }));
            if done.is_err() {
                // Nothing is known of the connections either.
                servers = Servers::new(Arc::clone(&self.address));
                self.recover();
            }
            self.note_trouble(&mut servers);
        }
        self.withdraw_orders(&mut servers);
    }

    /// E. Takes note of what has gone wrong. Returns whether nothing has.
    fn note_trouble(&self, servers: &mut Servers) -> bool {
        if let Some(Failure { why }) = servers.take_refusal() {
            let shown = self.address.shown.clone();
            self.teller.tell(&FleetTrouble::Denied { shown, why });
        }
        let failures = servers.take_failures();
        let is_well = failures.is_empty();
        for (node, Failure { why }) in failures {
            self.note_node_failure(node, why, servers.nodes());
        }
        is_well
    }

    fn exchange(&self, servers: &mut Servers, mut batch: Batch) {
        self.admit(&mut batch);
        for put in &mut batch.puts {
            self.checks.seal(&put.file, put.index, &mut put.value);
        }
        let commands = self.commands(&batch);
        let Batch { claims, puts, released, unkept, extended, deleted } = batch;
        let is_demand = claims.iter().any(|block| block.joint.is_demand());
        let most = if is_demand { DEMAND_MAX } else { EXCHANGE_MAX };
        let replies = match servers.exchange_within(&commands, most) {
            Ok(replies) => replies,
            Err(Failure { why }) => {
                self.note_failure(why);
                count(&self.counts.dropped, puts.len());
                self.forget_leases(puts.iter().map(|put| put.key.as_str()));
                return fetch(claims, false);
            }
        };
        drop(commands);
        if self.note_trouble(servers) {
            self.note_success();
        }
        let mut replies = replies.into_iter();
        // Of these there is nothing to be learnt: a lease that is lost is another's by now.
        let silent = deleted.len() + released.len() + unkept.len() + extended.len();
        replies.by_ref().take(silent).for_each(drop);
        self.after_puts(puts, &mut replies);
        self.after_claims(claims, &mut replies);
    }

    /// The commands of a batch, in the order in which their replies are read.
    fn commands(&self, batch: &Batch) -> Vec<Command> {
        let (ours, ms) = (lease(&self.token), self.address.lease.as_millis() as u64);
        let mut commands = Vec::new();
        for key in &batch.deleted {
            commands.push(Command::new(key, &cmd("UNLINK").arg(key).take()));
        }
        for key in &batch.released {
            let release = cmd("EVAL").arg(RELEASE).arg(1).arg(key).arg(&ours).take();
            commands.push(Command::new(key, &release));
        }
        let unkept_ms = UNKEPT_LASTS.as_millis() as u64;
        for key in &batch.unkept {
            let mut release = cmd("EVAL").arg(RELEASE_UNKEPT).arg(1).arg(key).arg(&ours).take();
            commands.push(Command::new(key, release.arg(&UNKEPT).arg(unkept_ms)));
        }
        for key in &batch.extended {
            let extend = cmd("EVAL").arg(EXTEND).arg(1).arg(key).arg(&ours).arg(ms).take();
            commands.push(Command::new(key, &extend));
        }
        for Put { key, value, .. } in &batch.puts {
            let ttl_ms = self.address.ttl.as_millis() as u64;
            let set = cmd("SET").arg(key).arg(value).arg("PX").arg(ttl_ms).take();
            commands.push(Command::vital(key, &set));
        }
        for block in &batch.claims {
            let key = block.key();
            // One byte more than a block has, to see whether a value is too long.
            let last = HEADER_BYTES + block.object.length_of(block.index);
            match &block.before {
                Before::Nothing => {}
                Before::Delete => commands.push(Command::new(&key, &cmd("DEL").arg(&key).take())),
                Before::TakeOver(holder) => {
                    let mut take = cmd("EVAL").arg(TAKE_OVER).arg(1).arg(&key).take();
                    commands.push(Command::new(&key, take.arg(lease(holder)).arg(&ours).arg(ms)));
                }
            }
            let get = cmd("GETRANGE").arg(&key).arg(0).arg(last).take();
            commands.push(Command::vital(&key, &get));
            if block.is_whole() {
                let set = cmd("SET").arg(&key).arg(&ours).arg("NX").arg("PX").arg(ms).take();
                commands.push(Command::vital(&key, &set));
            }
        }
        commands
    }

    fn after_puts(&self, puts: Vec<Put>, replies: &mut impl Iterator<Item = Option<Value>>) {
        let (mut done, mut not_put) = (Vec::new(), Vec::new());
        for (put, reply) in puts.iter().zip(replies) {
            match reply {
                Some(Value::Okay) => {
                    count(&self.counts.put, 1);
                    self.orders().note_put(put.file, put.index);
                    done.push(put.key.as_str());
                }
                // F. Others need not wait for what does not come.
                Some(reply) => {
                    count(&self.counts.declined, 1);
                    if has_code(&reply, "OOM") {
                        self.orders().set_filled(Some(1.0));
                    }
                    not_put.push(put.key.clone());
                }
                // E. Its node is away, and so is the lease.
                None => {
                    count(&self.counts.dropped, 1);
                    done.push(put.key.as_str());
                }
            }
        }
        self.release_unkept(not_put.into_iter());
        self.forget_leases(done.into_iter());
        if !puts.is_empty() {
            foretell_fault::point("foretell-fleet-puts");
        }
    }

    fn after_claims(&self, claims: Vec<Block>, replies: &mut impl Iterator<Item = Option<Value>>) {
        let (mut ours, mut straight) = (Vec::new(), Vec::new());
        let mut found = Vec::new();
        for mut block in claims {
            match std::mem::take(&mut block.before) {
                Before::Nothing => {}
                Before::Delete => drop(replies.next()),
                Before::TakeOver(_) => {
                    let was_taken = replies.next().flatten() == Some(Value::Int(1));
                    count(&self.counts.overdue, usize::from(was_taken));
                }
            }
            let value = replies.next().flatten();
            let set = block.is_whole().then(|| replies.next().flatten()).flatten();
            let mut outcome = self.outcome(&block, value, set);
            if let Outcome::Blank = outcome {
                block.blanks += 1;
                outcome = match block.blanks > BLANKS_MAX {
                    true => Outcome::Refused,
                    false => Outcome::Others(None),
                };
            }
            match outcome {
                Outcome::Found(value) => {
                    count(&self.counts.hit, 1);
                    found.push((block.object.id, block.index));
                    block.serve(&value[HEADER_BYTES..]);
                }
                Outcome::Ours => match self.note_lease(block.key()) {
                    false => ours.push(block),
                    // Another request of this process got it in the meantime.
                    true => straight.extend(self.wait_for(block, Some(self.token))),
                },
                Outcome::Others(holder) if block.is_whole() => {
                    straight.extend(self.wait_for(block, holder));
                }
                Outcome::Refused => {
                    self.note_refusal();
                    block.refusals += 1;
                    match block.refusals > REFUSALS_MAX || !block.is_whole() {
                        true => straight.push(block),
                        false => {
                            block.before = Before::Delete;
                            self.wait(block, Duration::ZERO);
                        }
                    }
                }
                Outcome::Others(_) | Outcome::Blank | Outcome::Straight => straight.push(block),
            }
        }
        self.have_arrived(&found);
        fetch(ours, true);
        fetch(straight, false);
    }

    fn outcome(&self, block: &Block, value: Option<Value>, set: Option<Value>) -> Outcome {
        let bytes = match value {
            Some(Value::BulkString(bytes)) => bytes,
            Some(Value::Nil) => Vec::new(),
            Some(reply) if has_code(&reply, "WRONGTYPE") => return Outcome::Refused,
            _ => return Outcome::Straight,
        };
        if !bytes.is_empty() {
            let length = block.object.length_of(block.index);
            return match self.checks.read((&block.object.id, block.index), length, &bytes) {
                Found::Block(_) => Outcome::Found(bytes),
                // From before the connection was lost, about to be given back, or taken over. Of a part there is never one.
                Found::Lease(token)
                    if token == self.token && block.is_whole() && !self.holds(&block.key()) =>
                {
                    Outcome::Ours
                }
                Found::Lease(token) => Outcome::Others(Some(token)),
                Found::Unkept => Outcome::Straight,
                Found::Wrong => Outcome::Refused,
            };
        }
        match set {
            Some(Value::Okay) => Outcome::Ours,
            Some(Value::Nil) => Outcome::Blank,
            // F. There is no room even for a lease.
            Some(reply) if has_code(&reply, "OOM") => {
                count(&self.counts.declined, 1);
                Outcome::Straight
            }
            _ => Outcome::Straight,
        }
    }

    /// C. Has the block asked for again in a while; `holder` has its lease. The block is handed back if waiting has no use.
    ///
    /// A lease that is extended again and again is taken over. So for each [`WAITS_LEASES`] one node of all that wait fetches
    /// the block too, not all of them.
    fn wait_for(&self, mut block: Block, holder: Option<Token>) -> Option<Block> {
        let now = Instant::now();
        let waits = block.waits.get_or_insert_with(|| {
            count(&self.counts.waited, 1);
            Waits { begun: now, since: now, holder: None, holders: 0, was_tried: false }
        });
        if holder.is_some() && waits.holder != holder {
            let (begun, holders) = (waits.begun, waits.holders + 1);
            *waits = Waits { begun, since: now, holder, holders, was_tried: false };
        }
        let is_overdue = now.duration_since(waits.since) > self.address.lease * WAITS_LEASES;
        let pause = (now.duration_since(waits.begun) / WAIT_PART).clamp(WAIT_MIN, WAIT_MAX);
        let holders = waits.holders;
        match waits.holder {
            _ if holders <= HOLDERS_MAX && !is_overdue => self.wait(block, pause),
            Some(other) if other != self.token && holders <= HOLDERS_MAX && !waits.was_tried => {
                waits.was_tried = true;
                block.before = Before::TakeOver(other);
                self.wait(block, Duration::ZERO);
            }
            // Too many holders, a server that permits no take-over, or another request of this process.
            _ => {
                count(&self.counts.overdue, 1);
                return Some(block);
            }
        }
        None
    }
}
